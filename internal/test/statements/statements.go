// Package statements finds the compiled statements of a package for tests that hold for each of them.
package statements

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/mariadb"
	"github.com/holdfast-go/holdfast/internal/dialect/mysql"
	"github.com/holdfast-go/holdfast/internal/dialect/postgres"
	"github.com/holdfast-go/holdfast/internal/dialect/sqlite"
	"github.com/holdfast-go/holdfast/internal/dialect/tidb"
	"github.com/holdfast-go/holdfast/internal/dialect/vitess"
)

// Dialects lists the dialects, and that of a Galera node.
func Dialects() []dialect.Dialect {
	galera := mariadb.Dialect
	galera.Name = "galera"
	for _, r := range galera.Admission.Rules {
		if r.Neutralise != nil {
			r.Neutralise(&galera, dialect.Facts{"wsrep_provider": "there", "wsrep_on": "ON"})
		}
	}
	return []dialect.Dialect{mysql.Dialect, mariadb.Dialect, galera, tidb.Dialect, vitess.Dialect, postgres.Dialect, sqlite.Dialect}
}

// In calls f with the name and the text of each statement in v, a struct, as it was before Compile: the
// parameters are $1, $2 and so on, and $0 is the owner. A field that holds a text has its path as the name.
func In(v any, f func(name, text string)) { in(reflect.ValueOf(v), "", f) }

var stmt = reflect.TypeFor[core.Stmt]()

func in(v reflect.Value, path string, f func(name, text string)) {
	switch {
	case v.Kind() == reflect.Pointer && !v.IsNil() && v.Elem().Kind() == reflect.Struct: // packages share the ledger
		if shared := v.Elem().FieldByName("SQL"); shared.IsValid() {
			in(shared, path, f)
		}
	case v.Kind() == reflect.String:
		f(path, v.String())
	case v.Kind() != reflect.Struct:
	case v.Type() == stmt:
		f(v.FieldByName("Name").String(), source(v))
	default:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.Name != "OrFail" { // of a core.Bound: Stmt again
				in(v.Field(i), strings.TrimPrefix(path+"."+field.Name, "."), f)
			}
		}
	}
}

// Of returns a short hash of the statements that an engine has for records, leases, tickets, row locks and
// business rows, and for keeping their transactions whole. Figures about the protocols are of one.
func Of(engine string) string {
	h := sha256.New()
	for _, d := range Dialects() {
		if d.Name == engine {
			for _, part := range []any{d.Fence, d.Records, d.Leases, d.Tickets, d.RowLocks, d.Rows} {
				In(part, func(name, text string) { _, _ = fmt.Fprintf(h, "%s\x00%s\x00", name, text) })
			}
		}
	}
	return fmt.Sprintf("%.4x", h.Sum(nil))
}

var (
	question = regexp.MustCompile(`\?`)
	number   = regexp.MustCompile(`\$[0-9]+`)
)

// source returns the text of a core.Stmt with the numbers that it had.
func source(v reflect.Value) string {
	text, order, shift := v.FieldByName("Text").String(), v.FieldByName("order"), 1
	if v.FieldByName("owned").Bool() {
		shift = 0
	}
	if order.Len() > 0 {
		n := -1
		return question.ReplaceAllStringFunc(text, func(string) string {
			n++
			return "$" + strconv.FormatInt(order.Index(n).Int()+int64(shift), 10)
		})
	}
	return number.ReplaceAllStringFunc(text, func(p string) string {
		n, _ := strconv.Atoi(p[1:])
		return "$" + strconv.Itoa(n-1+shift)
	})
}

// Table is the name of a table in the statements that NameTheOwner is given.
func Table(name string) string { return "{" + name + "}" }

var (
	table = regexp.MustCompile(`\{(records|locks|tickets|waiters|registers|staged|steps|provider_events|interventions|outbox|outbox_keys|similar|limits|limit_entries|proposals)\}`)
	part  = regexp.MustCompile(`(?i)\b(SELECT|INSERT INTO|UPDATE|DELETE)\b`)
	from  = regexp.MustCompile(`(?is)\b(FROM|JOIN)\s.*`)
	outer = regexp.MustCompile(`\b[se]\.owner = [lcm]\.owner\b`)
)

// NameTheOwner checks that each statement of compile that reads or writes rows of Holdfast's tables compares
// the owner, or inserts it: on a sharded database it then touches one shard. A subquery has to name it as
// well, or to compare it with that of the row outside. everyOwner are those that are about the rows of all
// owners: work in the background, lists for people, and what an operator does once.
func NameTheOwner(t *testing.T, least int, compile func(d *dialect.Dialect) any, everyOwner ...string) {
	t.Helper()
	for _, d := range Dialects() {
		seen := 0
		In(compile(&d), func(name, text string) {
			if !table.MatchString(text) || strings.HasSuffix(text, "WHERE 1 = 0") { // of no row
				return
			}
			seen++
			all := slices.Contains(everyOwner, name)
			for _, p := range part.Split(text, -1) {
				names := strings.Contains(p, "$0") || outer.MatchString(p)
				if table.MatchString(from.FindString(p)) && !names && !all {
					t.Errorf("%s: %s: a part does not name the owner: %s", d.Name, name, p)
				}
			}
			if strings.Contains(text, "$0") == all {
				t.Errorf("%s: %s: names the owner: %v", d.Name, name, !all)
			}
		})
		if seen < least {
			t.Errorf("%s: only %d statements were looked at", d.Name, seen)
		}
	}
}
