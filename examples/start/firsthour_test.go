package start_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// version is what the nested modules require.
const version = "v0.1.0"

// TestFirstHour follows each page of docs/start as a newcomer does: an empty home and module cache, the
// page's own commands and code, and Holdfast as a module proxy serves the last commit. It is run by
// make first-hour, and prints how long each page took. The docker lines are left out: the databases are
// those of the tests. It needs no network once Go's module cache has what the pages need.
func TestFirstHour(t *testing.T) {
	if os.Getenv("HOLDFAST_TEST_FIRST_HOUR") == "" {
		t.Skip("make first-hour runs it")
	}
	proxy := publish(t)
	for _, p := range []struct {
		name   string
		engine dbtest.Engine
	}{
		{"sqlite", dbtest.SQLite},
		{"pgx", dbtest.Postgres},
		{"postgres", dbtest.Postgres},
		{"mysql", dbtest.MySQL},
		{"gorm", dbtest.Postgres},
		{"sqlx", dbtest.MySQL},
	} {
		t.Run(p.name, func(t *testing.T) {
			dsn := strings.TrimPrefix(dbtest.DSN(t, p.engine), "mysql://")
			page, err := os.ReadFile(filepath.Join("..", "..", "docs", "start", p.name+".md"))
			if err != nil {
				t.Fatal(err)
			}
			home := t.TempDir()
			if err := os.WriteFile(filepath.Join(home, "main.go"), blocks(page, "go")[0], 0o600); err != nil {
				t.Fatal(err)
			}
			script := "set -e\n"
			for _, b := range blocks(page, "sh") {
				for line := range strings.Lines(string(b)) {
					if strings.HasPrefix(line, "docker ") || strings.HasPrefix(line, "export DATABASE_URL=") {
						continue
					}
					script += line
				}
				script += "[ -e main.go ] || cp ../main.go .\n" // as the page says: the program
			}
			var stderr bytes.Buffer
			cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
			cmd.Dir, cmd.Stderr = home, &stderr
			cmd.Env = []string{
				"PATH=" + os.Getenv("PATH"), "HOME=" + home, "DATABASE_URL=" + dsn,
				"GOPROXY=" + proxy, "GOSUMDB=off", "GOFLAGS=-modcacherw", "GOTOOLCHAIN=local",
			}
			begun := time.Now()
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, &stderr)
			}
			if want := string(blocks(page, "")[0]); string(out) != want {
				t.Errorf("printed %q, and the page says %q", out, want)
			}
			t.Logf("from nothing to its output in %.0f s, with the building of everything", time.Since(begun).Seconds())
		})
	}
}

// publish returns the address of a module proxy that serves the last commit.
func publish(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	run := func(in, name string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = in
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	clone := filepath.Join(dir, "clone")
	run(".", "git", "clone", "-q", "../..", clone)
	run(filepath.Join(clone, "internal", "release"), "go", "run", ".", version, clone, filepath.Join(dir, "proxy"), ".", "holdfastgorm")
	return "file://" + filepath.Join(dir, "proxy") + ",file://" + run(".", "go", "env", "GOMODCACHE") + "/cache/download"
}

// blocks returns the blocks of code in a language.
func blocks(page []byte, language string) (all [][]byte) {
	for _, m := range regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$").FindAllSubmatch(page, -1) { //nolint:gocritic // with (?m) it is the beginning of a line
		if string(m[1]) == language {
			all = append(all, m[2])
		}
	}
	return all
}
