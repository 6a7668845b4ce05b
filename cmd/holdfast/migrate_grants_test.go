package main

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

func TestMigrateGrants(t *testing.T) {
	t.Parallel()
	for engine, want := range map[string]string{
		"postgres": `GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE "s"."x_records" TO "pay";`,
		"mysql":    "GRANT SELECT, INSERT, UPDATE, DELETE ON `s`.`x_records` TO `pay`;",
		"mariadb":  "GRANT SELECT, INSERT, UPDATE, DELETE ON `s`.`x_records` TO `pay`;",
		"tidb":     "GRANT SELECT, INSERT, UPDATE, DELETE ON `s`.`x_records` TO `pay`;",
	} {
		if code, out, err := command(t, "migrate", "grants", "--engine", engine, "--role", "app", "--to", "pay", "-prefix", "x_", "-schema", "s"); code != exitOK || !strings.Contains(out, want+"\n") {
			t.Errorf("%s: %d, %s%s", engine, code, out, err)
		}
	}
	for _, args := range [][]string{
		{"--role", "app", "--to", "pay"},
		{"--engine", "mysql", "--to", "pay"},
		{"--engine", "mysql", "--role", "app"},
		{"--engine", "mysql", "--role", "owner", "--to", "pay"},
		{"--engine", "postgres", "--role", "app", "--to", "pay"}, // no schema
	} {
		if code, out, err := command(t, append([]string{"migrate", "grants"}, args...)...); code != exitUsage || out != "" || err == "" {
			t.Errorf("%v: %d, %s%s", args, code, out, err)
		}
	}
	for engine, want := range map[string]string{"sqlite": "no accounts", "vitess": "takes no GRANT"} {
		if code, out, err := command(t, "migrate", "grants", "--engine", engine, "--role", "app", "--to", "pay"); code == exitOK || out != "" || !strings.Contains(err, want) {
			t.Errorf("%s: %d, %s%s", engine, code, out, err)
		}
	}
}

func TestMigrateRowSecurity(t *testing.T) {
	t.Parallel()
	code, out, err := command(t, "migrate", "row-security", "-prefix", "x_", "-schema", "s", "--setting", "app.tenant", "--every-owner", `"a""b",c`)
	for _, want := range []string{
		`CREATE POLICY holdfast_owner ON "s"."x_records" USING (owner = COALESCE(pg_catalog.current_setting('app.tenant', true), '')) WITH CHECK (`,
		`CREATE POLICY holdfast_every_owner ON "s"."x_locks" TO "a""b", "c" USING (true) WITH CHECK (true);`,
		`ALTER TABLE "s"."x_outbox" ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;`,
	} {
		if code != exitOK || !strings.Contains(out, want) {
			t.Errorf("%d, %s: no %s in %s", code, err, want, out)
		}
	}
	for _, args := range [][]string{{}, {"-schema", "s", "--setting", "x'y.z"}, {"-schema", "s", "--setting", "work_mem"}, {"-schema", "s", "--every-owner", "a,,b"}} {
		if code, out, err := command(t, append([]string{"migrate", "row-security"}, args...)...); code != exitUsage || out != "" || err == "" {
			t.Errorf("%v: %d, %s%s", args, code, out, err)
		}
	}
}

// TestReaderIsTold runs doctor and reap as an account that may only read: they say so, and do not report
// that nothing was found and nothing was due.
func TestReaderIsTold(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e == dbtest.SQLite {
			return // it has no accounts
		}
		dbtest.Needs(t, e, dbtest.Users)
		url := dbtest.DSN(t, e)
		if code, _, err := command(t, "migrate", "up", "-dsn", url); code != exitOK {
			t.Fatal(err)
		}
		pool := dbtest.OpenSQL(t, url)
		exec := func(q string) {
			t.Helper()
			if _, err := pool.ExecContext(context.WithoutCancel(t.Context()), q); err != nil {
				t.Errorf("%s: %v", q, err)
			}
		}
		account, postgres := "hf_"+strings.ToLower(rand.Text()[:12]), e == dbtest.Postgres
		exec(`CREATE USER ` + account + map[bool]string{true: ` PASSWORD 'x'`, false: ` IDENTIFIED BY 'x'`}[postgres])
		t.Cleanup(func() {
			if postgres {
				exec(`DROP OWNED BY ` + account)
			}
			exec(`DROP USER ` + account)
		})
		var schema string
		if err := pool.QueryRowContext(t.Context(), map[bool]string{true: `SELECT current_schema()`, false: `SELECT DATABASE()`}[postgres]).Scan(&schema); err != nil {
			t.Fatal(err)
		}
		_, grants, _ := command(t, "migrate", "grants", "--engine", string(e), "-schema", schema, "--role", "reader", "--to", account)
		for q := range strings.SplitSeq(strings.TrimSuffix(grants, ";\n"), ";\n") {
			exec(q)
		}
		scheme, rest, _ := strings.Cut(url, "://")
		as := scheme + "://" + account + ":x" + rest[strings.LastIndex(rest, "@"):]
		if code, out, _ := command(t, "doctor", "--role", "app", "-dsn", as); code != exitBroken || !strings.Contains(out, "broken: privileges: the account lacks, for the role app: INSERT, UPDATE, DELETE on holdfast_records; ") {
			t.Errorf("doctor --role app: %d, %s", code, out)
		}
		if _, out, _ := command(t, "doctor", "-dsn", as); !strings.Contains(out, "warning: privileges: the account cannot do what a program does: it lacks ") || !strings.Contains(out, "it has the grants of reader") {
			t.Errorf("doctor: %s", out)
		}
		if code, out, err := command(t, "reap", "-dsn", as); code == exitOK || strings.Contains(out, "cleared") || !strings.Contains(err, "DELETE on ") {
			t.Errorf("reap: %d, %s%s", code, out, err)
		}
	})
}
