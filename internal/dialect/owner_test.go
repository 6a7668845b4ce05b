package dialect_test

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/mariadb"
	"github.com/holdfast-go/holdfast/internal/dialect/mysql"
	"github.com/holdfast-go/holdfast/internal/dialect/postgres"
	"github.com/holdfast-go/holdfast/internal/dialect/sqlite"
	"github.com/holdfast-go/holdfast/internal/dialect/tidb"
	"github.com/holdfast-go/holdfast/internal/dialect/vitess"
)

// everyOwner lists the statements that read or write the rows of all owners: work in the background,
// lists for people, and what an operator does once.
var everyOwner = []string{
	"Staged.Due", "Staged.StepFind", "Staged.List", "Staged.RecordList", "Staged.Namespaces",
	"Staged.Restore.Most", "Staged.Restore.Locks", "Staged.Restore.Tickets", "Staged.Restore.Waiters", "Staged.Restore.Pending", "Staged.Restore.Park",
	"Outbox.Due", "Outbox.Dead", "Outbox.Stats", "Outbox.Old", "Proposals.List",
}

// TestEachStatementNamesTheOwner checks that a statement that reads or writes rows of Holdfast's
// tables compares the owner, or inserts it: on a sharded database it then touches one shard. A
// subquery has to name it as well, or to compare it with that of the row outside.
func TestEachStatementNamesTheOwner(t *testing.T) {
	t.Parallel()
	table := regexp.MustCompile(`\{(records|locks|tickets|waiters|registers|staged|steps|provider_events|interventions|outbox|outbox_keys|intents|limits|limit_entries|proposals)\}`)
	outer := regexp.MustCompile(`\b[se]\.owner = [lcm]\.owner\b`)
	galera := mariadb.Dialect
	galera.Name = "galera"
	for _, r := range galera.Admission.Rules {
		if r.Neutralise != nil {
			r.Neutralise(&galera, dialect.Facts{"wsrep_provider": "there", "wsrep_on": "ON"})
		}
	}
	if galera.Leases.GuardWrite == "" {
		t.Fatal("a Galera node's guards do not write")
	}
	for _, d := range []dialect.Dialect{mysql.Dialect, mariadb.Dialect, galera, tidb.Dialect, vitess.Dialect, postgres.Dialect, sqlite.Dialect} {
		seen := 0
		for name, of := range map[string]any{
			"Records": d.Records, "Register": d.Register, "Leases": d.Leases, "Tickets": d.Tickets, "RowLocks": d.RowLocks, "Staged": d.Staged, "Outbox": d.Outbox, "Intents": d.Intents,
			"Limits": d.Limits, "Proposals": d.Proposals, "LimitCounter": d.LimitCounter(dialect.OwnLimitRow("{limits}", "{limit_entries}")),
		} {
			texts(reflect.ValueOf(of), name, func(name, text string) {
				if !table.MatchString(text) || strings.HasSuffix(text, "WHERE 1 = 0") { // of no row
					return
				}
				if name == "Leases.Announce" {
					text += d.Leases.AnnounceRow
				}
				seen++
				all := slices.Contains(everyOwner, name)
				for _, part := range regexp.MustCompile(`(?i)\b(SELECT|INSERT INTO|UPDATE|DELETE)\b`).Split(text, -1) {
					names := strings.Contains(part, "$0") || outer.MatchString(part)
					if from := regexp.MustCompile(`(?is)\b(FROM|JOIN)\s.*`).FindString(part); table.MatchString(from) && !names && !all {
						t.Errorf("%s: %s: a part does not name the owner: %s", d.Name, name, part)
					}
				}
				if strings.Contains(text, "$0") == all {
					t.Errorf("%s: %s: names the owner: %v", d.Name, name, !all)
				}
			})
		}
		if seen < 60 {
			t.Errorf("%s: only %d statements were looked at", d.Name, seen)
		}
	}
}

// TestInsertIDDependsOnARow checks that no statement sets its insert id to a constant: a server may
// do that before it looks for the row (TiDB does), and every claim would be lost.
func TestInsertIDDependsOnARow(t *testing.T) {
	t.Parallel()
	constant := regexp.MustCompile(`LAST_INSERT_ID\([^a-z{$)]+\)`)
	seen := 0
	for _, d := range []dialect.Dialect{mysql.Dialect, mariadb.Dialect, tidb.Dialect, vitess.Dialect} {
		texts(reflect.ValueOf(d), d.Name, func(name, text string) {
			if strings.Contains(text, "LAST_INSERT_ID(") {
				seen++
			}
			if found := constant.FindString(text); found != "" {
				t.Errorf("%s: %s", name, found)
			}
		})
	}
	if seen < 6 {
		t.Errorf("only %d statements were looked at", seen)
	}
}

// texts calls f with each text in v, and its path.
func texts(v reflect.Value, path string, f func(path, text string)) {
	switch v.Kind() {
	case reflect.String:
		f(path, v.String())
	case reflect.Struct:
		for i := range v.NumField() {
			texts(v.Field(i), path+"."+v.Type().Field(i).Name, f)
		}
	}
}
