package main

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

func TestMigrateFunctions(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		url := dbtest.DSN(t, e)
		if code, _, err := command(t, "migrate", "up", "-dsn", url); code != exitOK {
			t.Fatal(err)
		}
		for _, c := range []struct{ verb, done string }{{"up", "functions created\n"}, {"up", "functions created\n"}, {"down", "functions dropped\n"}, {"down", "functions dropped\n"}} {
			code, out, err := command(t, "migrate", "functions", c.verb, "-dsn", url)
			switch {
			case e == dbtest.SQLite || e == dbtest.TiDB || e == dbtest.Vitess:
				if code == exitOK || !strings.Contains(err, "docs/reference/protocol.md") {
					t.Errorf("%s: %d, %s%s", c.verb, code, out, err)
				}
			case code != exitOK || out != c.done:
				t.Errorf("%s: %d, %s%s", c.verb, code, out, err)
			}
		}
	})
}

func TestPrintFunctions(t *testing.T) {
	t.Parallel()
	for engine, want := range map[string][2]string{
		"postgres": {`CREATE OR REPLACE FUNCTION "s"."x_claim"(`, `GRANT EXECUTE ON FUNCTION "s"."x_claim"(text, text, text, bytea, text, integer, bigint) TO "app";`},
		"mysql":    {"CREATE PROCEDURE `s`.`x_claim`(", "GRANT EXECUTE ON PROCEDURE `s`.`x_claim` TO `app`;"},
		"mariadb":  {"CREATE PROCEDURE `s`.`x_claim`(", "GRANT EXECUTE ON PROCEDURE `s`.`x_claim` TO `app`;"},
	} {
		for i, more := range [][]string{nil, {"--grant-to", "app"}} {
			code, out, err := command(t, append([]string{"migrate", "functions", "print", "--engine", engine, "-prefix", "x_", "-schema", "s"}, more...)...)
			if code != exitOK || !strings.Contains(out, want[i]) {
				t.Errorf("%s %v: %d, %s", engine, more, code, err)
			}
		}
	}
	for _, args := range [][]string{{}, {"--engine", "oracle"}, {"--engine", "postgres"}} {
		if code, out, err := command(t, append([]string{"migrate", "functions", "print"}, args...)...); code != exitUsage || out != "" || err == "" {
			t.Errorf("%v: %d, %s%s", args, code, out, err)
		}
	}
	if code, out, err := command(t, "migrate", "functions", "print", "--engine", "sqlite"); code == exitOK || out != "" || !strings.Contains(err, "docs/reference/protocol.md") {
		t.Errorf("sqlite: %d, %s%s", code, out, err)
	}
}
