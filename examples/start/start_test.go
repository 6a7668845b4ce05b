// Package start_test runs the programs of docs/start.
package start_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

const (
	executed = "executed: refund of 1250 cents for order 42\n"
	replayed = "replayed: refund of 1250 cents for order 42\n"
)

// TestStart builds each program and runs it twice, as its page asks the reader to.
func TestStart(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	for name, engines := range map[string][]dbtest.Engine{
		"sqlite":   {dbtest.SQLite},
		"pgx":      {dbtest.Postgres},
		"postgres": {dbtest.Postgres},
		"gorm":     {dbtest.Postgres},
		"mysql":    {dbtest.MySQL, dbtest.MariaDB},
		"sqlx":     {dbtest.MySQL, dbtest.MariaDB},
	} {
		program := filepath.Join(bin, name)
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./"+name).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		for _, engine := range engines {
			t.Run(name+"/"+string(engine), func(t *testing.T) {
				t.Parallel()
				dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
					if e != engine {
						return
					}
					dir, dsn := t.TempDir(), strings.TrimPrefix(dbtest.DSN(t, e), "mysql://")
					for _, want := range []string{executed + replayed, replayed + replayed} {
						if got := output(t, program, dir, dsn); got != want {
							t.Errorf("printed %q, want %q", got, want)
						}
					}
				})
			})
		}
	}
}

// slow is what GORM prints of a statement that takes longer than 200 ms.
var slow = regexp.MustCompile(`(?s)\r?\n\S+ \S+ \x1b\[32m[^\n]*SLOW SQL[^\n]*\n.*?\x1b\[0m\n`)

func output(t *testing.T, program, dir, dsn string) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), "DATABASE_URL="+dsn), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	return slow.ReplaceAllString(string(out), "")
}
