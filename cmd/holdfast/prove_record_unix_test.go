//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestProveRecord walks from a server that no test run names to commands that open it: by prove --record, and
// by migrate up --prove.
func TestProveRecord(t *testing.T) {
	t.Parallel()
	for _, way := range [][]string{{"prove", "--record", "--duration", "20s"}, {"migrate", "up", "--prove"}} {
		t.Run(way[0], func(t *testing.T) {
			t.Parallel()
			dsn := dbtest.OwnMariaDB(t, "--version=11.9.1-MariaDB-log")
			in := func(args ...string) (int, string) {
				t.Helper()
				code, out, err := command(t, append(args, "-dsn", dsn)...)
				return code, out + err
			}
			if code, said := in("migrate", "up"); code != exitOK || !strings.Contains(said, "MariaDB 11.9") || !strings.Contains(said, "prove --record") {
				t.Errorf("migrate up: %d, %s", code, said)
			}
			if code, said := in("locks", "list"); code == exitOK || !strings.Contains(said, "prove --record") {
				t.Errorf("locks list: %d, %s", code, said)
			}
			if code, said := in(way...); code != exitOK || !strings.Contains(said, "recorded: programs and commands open MariaDB 11.9") {
				t.Errorf("%v: %d, %s", way, code, said)
			}
			for _, then := range [][]string{{"locks", "list"}, {"migrate", "up"}, {"ops", "list"}} {
				if code, said := in(then...); code != exitOK || strings.Contains(said, "prove") {
					t.Errorf("%v: %d, %s", then, code, said)
				}
			}
		})
	}
}
