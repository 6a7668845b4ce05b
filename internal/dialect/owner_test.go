package dialect_test

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/mariadb"
	"github.com/holdfast-go/holdfast/internal/dialect/mysql"
	"github.com/holdfast-go/holdfast/internal/dialect/tidb"
	"github.com/holdfast-go/holdfast/internal/dialect/vitess"
	"github.com/holdfast-go/holdfast/internal/test/statements"
)

// TestEachStatementNamesTheOwner does what statements.NameTheOwner says for the statements of the dialects.
func TestEachStatementNamesTheOwner(t *testing.T) {
	t.Parallel()
	writes := false
	statements.NameTheOwner(t, 20, func(d *dialect.Dialect) any {
		writes = writes || d.Name == "galera" && d.Leases.GuardWrite != ""
		leases := d.Leases
		leases.Announce += leases.AnnounceRow
		return struct {
			dialect.Records
			dialect.LeaseSQL
			dialect.TicketSQL
			dialect.RowLocks
		}{d.Records, leases, d.Tickets, d.RowLocks}
	})
	if !writes {
		t.Error("a Galera node's guards do not write")
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
