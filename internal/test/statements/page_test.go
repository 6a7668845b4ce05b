package statements_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/statements"
)

// TestPageIsOfTheseStatements compares the figures of docs/why/reliability.md with the protocols that they are about: where an engine's
// statements have changed since, its run has to be made again.
func TestPageIsOfTheseStatements(t *testing.T) {
	page, err := os.ReadFile("../../../docs/why/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	engines := map[string]string{"PostgreSQL": "postgres", "MySQL": "mysql", "MariaDB": "mariadb", "SQLite": "sqlite"}
	rows := regexp.MustCompile("(?m)^\\| (PostgreSQL|MySQL|MariaDB|SQLite) \\| \\d+ min \\|.*\\| `([0-9a-f]*)` \\|$").FindAllStringSubmatch(string(page), -1)
	if len(rows) != len(engines) {
		t.Errorf("the page has a long run of %d engines, want %d", len(rows), len(engines))
	}
	for _, r := range rows {
		if is := statements.Of(engines[r[1]]); r[2] != is {
			t.Errorf("the long run of %s is of the statements %s, and they are %s now: make faults DURATION=20m, and write its last line into the page", r[1], r[2], is)
		}
	}
	if is := "statements `" + statements.Of("sqlite") + "`"; !strings.Contains(string(page), is) {
		t.Errorf("the figures of the simulation are not of SQLite's %s: make simulation DURATION=1m SEED=20261127", is)
	}
}
