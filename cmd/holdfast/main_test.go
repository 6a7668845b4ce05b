package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

// asCommand makes the test binary run as the command, for tests that need a process.
const asCommand = "HOLDFAST_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	openURL = dbtest.OpenURL
	dbtest.VerifyNoLeaks(m)
}

// command runs the command and returns its exit status and its output.
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err strings.Builder
	code = run(t.Context(), args, &out, &err)
	return code, out.String(), err.String()
}

// existingDSN makes an empty database. On SQLite that is a file.
func existingDSN(t *testing.T, e dbtest.Engine) string {
	t.Helper()
	url := dbtest.DSN(t, e)
	if err := dbtest.OpenSQL(t, url).PingContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return url
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		url := dbtest.DSN(t, e)
		step := func(wantOut string, args ...string) {
			t.Helper()
			code, out, err := command(t, append([]string{"migrate", "-dsn", url}, args...)...)
			if code != 0 || out != wantOut || err != "" {
				t.Errorf("%v: status %d, %q, %q", args, code, out, err)
			}
		}
		if e == dbtest.SQLite { // a command that does not create makes no file
			if code, _, err := command(t, "migrate", "version", "-dsn", url); code != exitUsage || !strings.Contains(err, "there is no file") {
				t.Errorf("status %d, %q", code, err)
			}
		} else {
			step("version 0 of 1\n", "version")
		}
		step("version 1 of 1\n", "up")
		step("version 1 of 1\n", "up")
		step(`{"version":1,"latest":1,"dirty":false}`+"\n", "version", "-json")
		step("version 0 of 1\n", "version", "--prefix", "x_")
		step("version 1 of 1\n", "up", "--prefix=x_")
		step("version 0 of 1\n", "down", "--yes")
		step("version 1 of 1\n", "version", "-prefix=x_")
		if code, _, err := command(t, "migrate", "down", "-dsn="+url); code != exitUsage || !strings.Contains(err, "--yes") {
			t.Errorf("down without --yes: status %d, %q", code, err)
		}
		if code, _, err := command(t, "migrate", "up", "-dsn="+url, "--schema", "not there"); code != 1 || err == "" {
			t.Errorf("up in a schema that is missing: status %d, %q", code, err)
		}
	})
}

func TestDSNFromEnvironment(t *testing.T) {
	t.Setenv(dsnVariable, "")
	if code, _, err := command(t, "migrate", "up"); code != exitUsage || !strings.Contains(err, dsnVariable) {
		t.Errorf("status %d, %q", code, err)
	}
	t.Setenv(dsnVariable, "sqlite://"+filepath.Join(t.TempDir(), "a.db"))
	if code, out, err := command(t, "migrate", "up"); code != 0 || out != "version 1 of 1\n" {
		t.Errorf("status %d, %q, %q", code, out, err)
	}
}

func TestPrint(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"postgres", "mysql", "mariadb", "sqlite"} {
		code, out, err := command(t, "migrate", "print", "--engine", engine, "-prefix", "x_", "-schema", "s")
		if code != 0 || !strings.Contains(out, "x_records") || strings.Contains(out, "holdfast_") {
			t.Errorf("%s: status %d, %q, %q", engine, code, out, err)
		}
		_, asJSON, _ := command(t, "migrate", "print", "--engine", engine, "-prefix", "x_", "-schema", "s", "--json")
		var got struct {
			Engine  string `json:"engine"`
			Version int    `json:"version"`
			SQL     string `json:"sql"`
		}
		if err := json.Unmarshal([]byte(asJSON), &got); err != nil || got.SQL != out || got.Version != migrations.Version || got.Engine != engine {
			t.Errorf("%s: %v in %s", engine, err, asJSON)
		}
	}
	code, out, err := command(t, "migrate", "print", "--engine", "vitess", "--owner-move", "-prefix", "x_")
	if code != 0 || !strings.Contains(out, "INSERT INTO `x_records` (") || strings.Contains(out, "holdfast_") {
		t.Errorf("an owner's move: status %d, %q, %q", code, out, err)
	}
	for _, args := range [][]string{{}, {"-engine", "oracle"}, {"-engine", "mysql", "-prefix", "a`b"}, {"--engine", "vitess", "--owner-move", "--vschema"}} {
		if code, out, err := command(t, append([]string{"migrate", "print"}, args...)...); code != exitUsage || out != "" || err == "" {
			t.Errorf("%v: status %d, %q, %q", args, code, out, err)
		}
	}
}

func TestNoPasswordInErrors(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"postgres://u:S3cr3t@127.0.0.1:1/db", "postgres://u:S3cr3t@127.0.0.1:1", "postgres://u:S3cr3t@h:x/db",
		"mysql://u:S3cr3t@tcp(127.0.0.1:1)/db", "mysql://u:S3cr3t@127.0.0.1:1/db", "u:S3cr3t@tcp(h)/db", "S3cr3t",
	} {
		for _, args := range [][]string{
			{"migrate", "up", "-dsn", url},
			{"migrate", "version", "-json", "-dsn=" + url},
			{"migrate", "up", url},
			{"migrate", url},
			{url},
		} {
			if code, out, err := command(t, args...); code == exitOK || err == "" || strings.Contains(out+err, "S3cr3t") {
				t.Errorf("%v: status %d, %q, %q", args, code, out, err)
			}
		}
		if !strings.Contains(url, "://") {
			continue
		}
		for _, args := range [][]string{{"migrate", "up", "-dns=" + url}, {"migrate", "up", "-json=" + url}, {"migrate", "down", "--yes=" + url}} {
			if code, out, err := command(t, args...); code == exitOK || err == "" || strings.Contains(out+err, "S3cr3t") {
				t.Errorf("%v: status %d, %q, %q", args, code, out, err)
			}
		}
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"-h"}, {"migrate"}, {"migrate", "--help"}, {"-help"}} {
		if code, out, err := command(t, args...); code != 0 || !strings.Contains(out, "migrate") {
			t.Errorf("%v: status %d, %q, %q", args, code, out, err)
		}
	}
}
