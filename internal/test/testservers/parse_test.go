//go:build unix

package main

import (
	"bufio"
	"errors"
	"flag"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestParseEngines(t *testing.T) {
	t.Parallel()
	got, err := parseEngines(" postgres , sqlite,, postgres", allEngines)
	if want := []engine{postgres, sqlite}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if _, err := parseEngines("oracle", allEngines); err == nil {
		t.Error("an unknown engine is no error")
	}
	if _, err := parseEngines("sqlite", serverEngines); err == nil {
		t.Error("sqlite is no server")
	}
}

func TestParseOptions(t *testing.T) {
	t.Parallel()
	env := map[string]string{"HOLDFAST_TEST_REQUIRE": "mysql, sqlite", "HOLDFAST_TEST_DOCKER": "0"}
	getenv := func(name string) string { return env[name] }
	got, err := parseOptions([]string{"-dir", "/d", "-engines", "mariadb,sqlite", "--", "go", "test", "-v"}, getenv)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case got.dir != "/d", got.docker, !got.install,
		!slices.Equal(got.engines, []engine{mariadb}),
		!slices.Equal(got.required, []engine{sqlite}),
		!slices.Equal(got.command, []string{"go", "test", "-v"}):
		t.Errorf("got %+v", got)
	}
	if got, err := parseOptions([]string{"true"}, getenv); err != nil || !slices.Equal(got.engines, serverEngines) {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := parseOptions([]string{"-engines", "sqlite", "true"}, getenv); err != nil || len(got.engines) != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, args := range [][]string{nil, {"-engines", "oracle", "true"}} {
		if _, err := parseOptions(args, getenv); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
	if _, err := parseOptions([]string{"-h"}, getenv); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
	env["HOLDFAST_TEST_REQUIRE"] = "oracle"
	if _, err := parseOptions([]string{"true"}, getenv); err == nil {
		t.Error("an unknown engine is required and that is no error")
	}
}

func TestShortVersion(t *testing.T) {
	t.Parallel()
	for long, want := range map[string]string{
		"15.14 (Debian 15.14-0+deb12u1)":    "15.14",
		"9.7.4-0debian1\n":                  "9.7.4",
		"10.11.19-MariaDB-0+deb12u1":        "10.11.19",
		"3.53.4":                            "3.53.4",
		"no number":                         "no number",
		"18beta1 (Debian 18~beta1-1.pgdg1)": "18",
	} {
		if got := shortVersion(long); got != want {
			t.Errorf("%q: got %q, want %q", long, got, want)
		}
	}
}

func TestDSN(t *testing.T) {
	t.Parallel()
	if got, want := postgres.dsn("u", "p", "h:1", "d"), "postgres://u:p@h:1/d?sslmode=disable"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := mariadb.dsn("u", "p", "h:1", "d"), "mysql://u:p@tcp(h:1)/d"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := mariadb.variable(), "HOLDFAST_TEST_MARIADB_DSN"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestMySQLConfig(t *testing.T) {
	t.Parallel()
	got, err := mysqlConfig("mysql://u:p%2Fw@tcp(h:3306)/d")
	if err != nil || got.Passwd != "p/w" || got.Addr != "h:3306" || got.DBName != "d" {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, dsn := range []string{"u:hunter2@tcp(h)/d", "mysql://u:hunter2@h:1/d", "mysql://u:hunter2%zz@tcp(h)/d"} {
		_, err := mysqlConfig(dsn)
		if !errors.Is(err, errBadDSN) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", dsn, err)
		}
	}
}

func TestIsMariaDB(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"/usr/sbin/mysqld  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)": true,
		"mysqld  Ver 9.7.4 for Linux on x86_64 (MySQL Community Server - GPL)":                        false,
	} {
		if got := isMariaDB(version); got != want {
			t.Errorf("%q: got %v", version, got)
		}
	}
}

func TestCompareVersions(t *testing.T) {
	t.Parallel()
	got := []string{"/usr/lib/postgresql/9.6/bin", "/usr/lib/postgresql/18/bin", "/usr/lib/postgresql/9/bin", "/usr/lib/postgresql/15/bin"}
	slices.SortFunc(got, compareVersions)
	want := []string{"/usr/lib/postgresql/9/bin", "/usr/lib/postgresql/9.6/bin", "/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/18/bin"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestIsDebian(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"PRETTY_NAME=\"Debian GNU/Linux 12\"\nID=debian\n": true,
		"NAME=Ubuntu\nID=ubuntu\nID_LIKE=debian\n":         true,
		"ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n":        true,
		"ID=fedora\nVARIANT_ID=debian\n":                   false,
		"":                                                 false,
	} {
		if got := isDebian(bufio.NewScanner(strings.NewReader(text))); got != want {
			t.Errorf("%q: got %v", text, got)
		}
	}
}

func TestHasCandidate(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]bool{
		"mariadb-server-core:\n  Installed: (none)\n  Candidate: 1:10.11.19-0+deb12u1\n": true,
		"mysql-server-core:\n  Installed: (none)\n  Candidate: (none)\n":                 false,
		"": false,
	} {
		if got := hasCandidate(policy); got != want {
			t.Errorf("%q: got %v", policy, got)
		}
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	if got, want := tail("one\ntwo\n\n"), "one | two"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := tail(strings.Repeat("x", 2*logTail)); len(got) > logTail+10 {
		t.Errorf("%d bytes", len(got))
	}
}

func TestExitStatus(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 128 + int(syscall.SIGKILL)} {
		if got := exitStatus(exec.CommandContext(t.Context(), "sh", "-c", script).Run()); got != want {
			t.Errorf("%s: got %d, want %d", script, got, want)
		}
	}
}
