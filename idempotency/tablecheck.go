package idempotency

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// checkKey refuses a key whose columns can be NULL or fold different values,
// and one that no full unique index stands for.
func (t *Table[R, Tx]) checkKey(ctx context.Context) error {
	rows := &t.access.Dialect.Rows
	columns, err := t.catalog(ctx, "row.columns", rows.Columns, 4)
	if err != nil {
		return err
	}
	if len(columns) == 0 {
		return invalid("TableSpec.Table", fmt.Sprintf("table %q was not found", t.spec.Table))
	}
	t.text = map[string]bool{}
	for _, key := range t.spec.Key {
		n := slices.IndexFunc(columns, func(c []string) bool { return c[0] == key })
		if n < 0 {
			return invalid("TableSpec.Key", fmt.Sprintf("table %q has no column %q", t.spec.Table, key))
		}
		typ, collation, notNull := columns[n][1], columns[n][2], columns[n][3] == "1"
		if !notNull {
			return invalid("TableSpec.Key", fmt.Sprintf("column %q allows NULL, and a unique key takes every NULL for another value: declare it NOT NULL", key))
		}
		if ok, why := rows.Exact(typ, collation); !ok {
			return invalid("TableSpec.Key", fmt.Sprintf("column %q: %s", key, why))
		}
		if holdfast.Engine(t.access.Dialect.Name) == holdfast.SQLite && !strings.Contains(typ, "INT") {
			t.text[key] = !strings.Contains(typ, "BLOB")
		}
	}
	return t.checkUnique(ctx, rows)
}

func (t *Table[R, Tx]) checkUnique(ctx context.Context, rows *dialect.Rows) error {
	found, err := t.catalog(ctx, "row.uniques", rows.Uniques, 3)
	if err != nil {
		return err
	}
	indexes := map[string][]string{}
	partial := map[string]bool{}
	for _, r := range found {
		indexes[r[0]] = append(indexes[r[0]], r[1])
		partial[r[0]] = partial[r[0]] || r[2] != "1"
	}
	want := slices.Sorted(slices.Values(t.spec.Key))
	half := ""
	for name, columns := range indexes {
		slices.Sort(columns)
		if !slices.Equal(columns, want) {
			continue
		}
		if !partial[name] {
			return nil
		}
		half = name
	}
	if half != "" {
		return invalid("TableSpec.Key", fmt.Sprintf("index %s does not cover every row and the whole of each column (partial, deferrable, on an expression or a prefix): make it a plain unique key", half))
	}
	return invalid("TableSpec.Key", fmt.Sprintf("table %q has no unique index of exactly the columns %v: CREATE UNIQUE INDEX ON %s (%s)", t.spec.Table, t.spec.Key, t.spec.Table, strings.Join(t.spec.Key, ", ")))
}

// catalog reads n columns, as text, of what the engine says of the table.
func (t *Table[R, Tx]) catalog(ctx context.Context, name, text string, n int) ([][]string, error) {
	rows, err := t.access.Dialect.Compile(name, text).Query(ctx, t.access.Pool, t.spec.Schema, t.spec.Table)
	if err != nil {
		return nil, fmt.Errorf("idempotency: reading about table %q: %w", t.spec.Table, err)
	}
	defer rows.Close()
	var out [][]string
	for rows.Next() {
		values := make([]string, n)
		var flag int
		dest := make([]any, n)
		for i := range values {
			dest[i] = &values[i]
		}
		dest[n-1] = &flag
		if err := rows.Scan(dest...); err != nil {
			return nil, fmt.Errorf("idempotency: reading about table %q: %w", t.spec.Table, err)
		}
		values[n-1] = strconv.Itoa(flag)
		out = append(out, values)
	}
	return out, rows.Err()
}
