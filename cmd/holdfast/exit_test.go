package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

// TestExitStatus checks the four exit statuses of the process: done, failed, misused and
// broken.
func TestExitStatus(t *testing.T) {
	t.Parallel()
	url := dbtest.DSN(t, dbtest.SQLite)
	if err := migrations.Up(t.Context(), dbtest.OpenSQL(t, url)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want int
		args []string
	}{
		{exitOK, []string{"version"}},
		{exitOK, []string{"locks", "list"}},
		{exitOK, []string{"doctor"}},
		{exitOK, []string{"completion", "bash"}},
		{exitFailed, []string{"locks", "list", "--prefix", "other_"}},
		{exitFailed, []string{"locks", "list", "--dsn", "postgres://u@127.0.0.1:1/db"}},
		{exitUsage, []string{"nonsense"}},
		{exitUsage, []string{"locks", "list", "--nonsense"}},
		{exitUsage, []string{"locks", "release"}},
		{exitUsage, []string{"locks", "list", "--prefix", "a;b"}},
		{exitUsage, []string{"locks", "list", "--dsn", "nothing"}},
		{exitUsage, []string{"locks", "list", "--dsn-file", "/not/there"}},
		{exitUsage, []string{"reap", "--every", "soon"}},
		{exitUsage, []string{"reap", "--every", "1ns"}},
		{exitUsage, []string{"bench", "--clients", "0"}},
		{exitUsage, []string{"bench", "--duration", "1h"}},
		{exitUsage, []string{"prove", "--duration", "1h"}},
		{exitUsage, []string{"prove", "--report", filepath.Join(t.TempDir(), "not there", "report")}},
		{exitBroken, []string{"doctor", "--prefix", "other_"}},
	} {
		args := append([]string{"-dsn", url}, c.args...)
		if slices.ContainsFunc(c.args, func(a string) bool { return strings.HasPrefix(a, "--dsn") }) {
			args = c.args
		}
		if code, _, err := command(t, args...); code != c.want {
			t.Errorf("%v: status %d, want %d: %s", c.args, code, c.want, err)
		}
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "doctor", "-json", "-prefix=other_")
	cmd.Env = append(os.Environ(), asCommand+"=1", dsnVariable+"="+url)
	out, err := cmd.Output()
	if cmd.ProcessState.ExitCode() != exitBroken || !json.Valid(out) {
		t.Errorf("the process: %v, %s", err, out)
	}
}

// TestInterruptedReap checks that a reap in a loop exits with success when it is interrupted.
func TestInterruptedReap(t *testing.T) {
	t.Parallel()
	url := dbtest.DSN(t, dbtest.SQLite)
	if err := migrations.Up(t.Context(), dbtest.OpenSQL(t, url)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "reap", "-every=50ms")
	cmd.Env = append(os.Environ(), asCommand+"=1", dsnVariable+"="+url)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // the first pass is over
		t.Error(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_, _ = out.Read(make([]byte, 1<<16))
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestSecrets checks that the URL and the password can come from files, the environment and
// standard input.
func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	database := "sqlite://" + file("a.db", "")
	url, two, empty := file("url", database+"\n"), file("two", database+"\n"+database), file("empty", "\n")
	for _, c := range []struct {
		dsn, dsnFile, stdin string
		args                []string
		want                int
	}{
		{args: []string{"up", "-dsn-file=-"}, stdin: database, want: exitOK}, // it opens the database more than once
		{dsnFile: url, want: exitOK},
		{args: []string{"-dsn-file", url}, want: exitOK},
		{args: []string{"-dsn-file=-"}, stdin: database + "\r\n", want: exitOK},
		{args: []string{"-dsn-file", url}, dsn: "postgres://elsewhere/db", want: exitOK},
		{args: []string{"-dsn", database}, dsnFile: two, want: exitOK},
		{args: []string{"-dsn", database, "-dsn-file", url}, want: exitUsage},
		{dsn: database, dsnFile: url, want: exitUsage},
		{dsnFile: two, want: exitUsage},
		{dsnFile: empty, want: exitUsage},
		{dsnFile: filepath.Join(dir, "not there"), want: exitUsage},
		{dsn: database, args: []string{"-password-file", url}, want: exitUsage},
		{want: exitUsage},
	} {
		t.Setenv(dsnVariable, c.dsn)
		t.Setenv(dsnFileVariable, c.dsnFile)
		args := c.args
		if len(args) == 0 || args[0] != "up" {
			args = append([]string{"version"}, args...)
		}
		was := os.Stdin
		os.Stdin, _ = os.Open(file("stdin", c.stdin))
		code, _, err := command(t, append([]string{"migrate"}, args...)...)
		_ = os.Stdin.Close()
		os.Stdin = was
		if code != c.want {
			t.Errorf("%+v: status %d: %s", c, code, err)
		}
	}
}

// TestPasswordFile checks that the server accepts every password that a password file can
// hold.
func TestPasswordFile(t *testing.T) {
	for _, c := range []struct{ url, password, want string }{
		{"postgres://ada@h:5432/db?sslmode=disable&application_name=a@b", "p@/:?# +%é", "postgres://ada:p%40%2F%3A%3F%23%20%2B%25%C3%A9@h:5432/db?sslmode=disable&application_name=a@b"},
		{"mysql://ada@tcp(h:3306)/db", "p@ +", "mysql://ada:p%40%20%2B@tcp(h:3306)/db"},
		{"postgres://ada:x@h/db", "p", ""},
		{"postgres://h/db?a=b@c", "p", ""},
		{"postgres://h/db", "p", ""},
		{"sqlite://a@b", "p", ""},
		{"a@b", "p", ""},
	} {
		got, err := withPassword(c.url, c.password)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: got %s, %v", c.url, got, err)
		}
	}
	for _, e := range dbtest.Engines() {
		if e == dbtest.SQLite {
			continue
		}
		pool := dbtest.OpenSQL(t, dbtest.DSN(t, e))
		name, password := "hf_"+strings.ToLower(time.Now().Format("150405000000")), `p@/:?# +%é`
		create, grant, drop := `CREATE USER `+name+` IDENTIFIED BY '`+password+`'`, `GRANT ALL ON *.* TO `+name, `DROP USER `+name
		if e == dbtest.Postgres {
			create, grant = `CREATE USER `+name+` SUPERUSER PASSWORD '`+password+`'`, `SELECT 1`
		}
		for _, q := range []string{create, grant} {
			if _, err := pool.ExecContext(t.Context(), q); err != nil {
				t.Fatal(e, err)
			}
		}
		t.Cleanup(func() { _, _ = pool.ExecContext(context.WithoutCancel(t.Context()), drop) })
		url := dbtest.DSN(t, e)
		scheme, rest, _ := strings.Cut(url, "://")
		file := filepath.Join(t.TempDir(), "password")
		for text, want := range map[string]int{password + "\n": exitOK, "wrong": exitFailed} {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv(dsnVariable, scheme+"://"+name+rest[strings.LastIndex(rest, "@"):])
			t.Setenv(passwordFileVariable, file)
			if code, _, err := command(t, "migrate", "version"); code != want {
				t.Errorf("%s: %q: status %d: %s", e, text, code, err)
			}
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	code, out, _ := command(t, "version", "-json")
	var v struct {
		Version, Go string
		Schema      int
	}
	if err := json.Unmarshal([]byte(out), &v); code != exitOK || err != nil || v.Version == "" || v.Go == "" || v.Schema != migrations.Version {
		t.Errorf("status %d: %s", code, out)
	}
	if code, out, _ := command(t, "version"); code != exitOK || !strings.Contains(out, "holdfast "+v.Version) {
		t.Errorf("status %d: %s", code, out)
	}
}
