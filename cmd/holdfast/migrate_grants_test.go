package main

import (
	"strings"
	"testing"
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
