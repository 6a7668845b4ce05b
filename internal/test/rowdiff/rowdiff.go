// Package rowdiff compares tables before and after a statement: which rows changed, in which columns, and
// to what. Everything else must be as it was, such as the rows of another owner.
package rowdiff

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Table is a table, with the columns that name a row of it.
type Table struct {
	Name string
	Key  []string
}

// Row is a row by its columns. A NULL is [Null].
type Row map[string]string

// Null is the text of a NULL.
const Null = "NULL"

// Rows are the rows of some tables, by the table and the values of its key: "steps shop A pay".
type Rows map[string]Row

// Read reads tables. short names a table in the result; nil takes its own name.
func Read(ctx context.Context, tb testing.TB, q core.Querier, short func(string) string, tables ...Table) Rows {
	tb.Helper()
	all := Rows{}
	for _, t := range tables {
		found, err := q.Query(ctx, "SELECT * FROM "+t.Name)
		if err != nil {
			tb.Fatal(err)
		}
		columns, err := found.Columns()
		if err != nil {
			tb.Fatal(err)
		}
		rows, err := core.Collect(found, func(r core.Row) (Row, error) { return scan(r, columns) })
		if err != nil {
			tb.Fatal(err)
		}
		for _, row := range rows {
			name := []string{short(t.Name)}
			for _, c := range t.Key {
				name = append(name, row[c])
			}
			all[strings.Join(name, " ")] = row
		}
	}
	return all
}

func scan(r core.Row, columns []string) (Row, error) {
	values, to := make([]any, len(columns)), make([]any, len(columns))
	for i := range values {
		to[i] = &values[i]
	}
	if err := r.Scan(to...); err != nil {
		return nil, err
	}
	row := Row{}
	for i, c := range columns {
		switch v := values[i].(type) {
		case nil:
			row[c] = Null
		case []byte:
			row[c] = string(v)
		default:
			row[c] = fmt.Sprint(v)
		}
	}
	return row, nil
}

// Clock is a time between two readings of the database's clock, in µs.
type Clock struct{ From, To int64 }

// Want says what a column has to be. was is what it was.
type Want func(was, is string, now Clock) bool

// Is is a value.
func Is(v any) Want {
	return func(_, is string, _ Clock) bool { return is == fmt.Sprint(v) }
}

// Plus is what it was, and n more.
func Plus(n int64) Want {
	return func(was, is string, _ Clock) bool { return number(is) == number(was)+n }
}

// Now is the time of the statement, and us µs more.
func Now(us int64) Want {
	return func(_, is string, now Clock) bool { return now.From+us <= number(is) && number(is) <= now.To+us }
}

// Raised is the greater of the time of the statement and one more than it was.
func Raised(was, is string, now Clock) bool {
	return max(number(was)+1, now.From) <= number(is) && number(is) <= max(number(was)+1, now.To)
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return -1 << 62
	}
	return n
}

// Changes are those of rows, by their names; a nil Change is a row that is gone. A column that is not named
// stays as it was. A new row has the columns that are named.
type Changes map[string]Change

// Change is that of a row, by its columns.
type Change map[string]Want

// Check fails unless the rows have changed as want says, and in no other way.
func Check(tb testing.TB, what string, before, after Rows, want Changes, now Clock) {
	tb.Helper()
	for name := range maps.Keys(want) {
		if before[name] == nil && after[name] == nil {
			tb.Errorf("%s: there is no %s", what, name)
		}
	}
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		was, is := before[name], after[name]
		change, changes := want[name]
		switch {
		case is == nil && (!changes || change != nil):
			tb.Errorf("%s: %s is gone", what, name)
		case is != nil && changes && change == nil:
			tb.Errorf("%s: %s is still there", what, name)
		case was == nil && !changes:
			tb.Errorf("%s: %s is new", what, name)
		case is != nil:
			columns(tb, what+": "+name, was, is, change, now)
		}
	}
}

func columns(tb testing.TB, what string, was, is Row, want Change, now Clock) {
	tb.Helper()
	for _, c := range slices.Sorted(maps.Keys(is)) {
		ok := was == nil || is[c] == was[c]
		if w := want[c]; w != nil {
			ok = w(was[c], is[c], now)
		}
		if !ok {
			tb.Errorf("%s: %s is %.60q, it was %.60q (the clock: %+v)", what, c, is[c], was[c], now)
		}
	}
}

// Except returns the rows for which f does not hold.
func (all Rows) Except(f func(Row) bool) Rows {
	rest := maps.Clone(all)
	maps.DeleteFunc(rest, func(_ string, r Row) bool { return f(r) })
	return rest
}
