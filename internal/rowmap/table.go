package rowmap

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// Table is a table of the caller's own, as the engine describes it.
type Table struct {
	Schema, Name string
	// Quoted is the name in SQL.
	Quoted  string
	Columns []Column
	// Index is the unique index that stands for the last Key that was asked for.
	Index string

	dialect *dialect.Dialect
	pool    core.Querier
}

// Column is one of its columns.
type Column struct {
	Name, Type, Collation string
	NotNull               bool
}

// Describe reads the catalog. A schema "" is the connection's own; check judges the names.
func Describe(ctx context.Context, d *dialect.Dialect, pool core.Querier, check func(argument, name string) error, schema, name string) (*Table, error) {
	t := &Table{Schema: schema, Name: name, Quoted: d.Ident(name), dialect: d, pool: pool}
	if err := check("TableSpec.Table", name); err != nil {
		return nil, err
	}
	if schema != "" {
		if err := check("TableSpec.Schema", schema); err != nil {
			return nil, err
		}
		t.Quoted = d.Ident(schema) + "." + t.Quoted
	}
	columns, err := t.catalog(ctx, "row.columns", d.Rows.Columns, 4)
	if err != nil {
		return nil, err
	}
	if len(columns) == 0 {
		return nil, invalid("TableSpec.Table", fmt.Sprintf("table %q was not found", name))
	}
	for _, c := range columns {
		t.Columns = append(t.Columns, Column{c[0], c[1], c[2], c[3] == "1"})
	}
	return t, nil
}

// Column finds a column that argument names.
func (t *Table) Column(argument, name string) (Column, error) {
	n := slices.IndexFunc(t.Columns, func(c Column) bool { return c.Name == name })
	if n < 0 {
		return Column{}, invalid(argument, fmt.Sprintf("table %q has no column %q", t.Name, name))
	}
	return t.Columns[n], nil
}

// Key refuses a key that no full unique index of exactly these columns stands
// for, or one of whose columns allows NULL.
func (t *Table) Key(ctx context.Context, names []string) ([]Column, error) {
	if len(names) == 0 {
		return nil, invalid("TableSpec.Key", "names no column")
	}
	key := make([]Column, len(names))
	for i, name := range names {
		c, err := t.Column("TableSpec.Key", name)
		if err != nil {
			return nil, err
		}
		if !c.NotNull {
			return nil, invalid("TableSpec.Key", fmt.Sprintf("column %q allows NULL, and a unique key takes every NULL for another value: declare it NOT NULL", name))
		}
		key[i] = c
	}
	return key, t.unique(ctx, names)
}

func (t *Table) unique(ctx context.Context, key []string) error {
	found, err := t.catalog(ctx, "row.uniques", t.dialect.Rows.Uniques, 3)
	if err != nil {
		return err
	}
	indexes := map[string][]string{}
	partial := map[string]bool{}
	for _, r := range found {
		indexes[r[0]] = append(indexes[r[0]], r[1])
		partial[r[0]] = partial[r[0]] || r[2] != "1"
	}
	want := slices.Sorted(slices.Values(key))
	half := ""
	for _, name := range slices.Sorted(maps.Keys(indexes)) {
		columns := indexes[name]
		slices.Sort(columns)
		if !slices.Equal(columns, want) {
			continue
		}
		if !partial[name] {
			t.Index = name
			return nil
		}
		half = name
	}
	if half != "" {
		return invalid("TableSpec.Key", fmt.Sprintf("index %s does not cover every row and the whole of each column (partial, deferrable, on an expression or a prefix): make it a plain unique key", half))
	}
	return invalid("TableSpec.Key", fmt.Sprintf("table %q has no unique index of exactly the columns %v: CREATE UNIQUE INDEX ON %s (%s)", t.Name, key, t.Name, strings.Join(key, ", ")))
}

// Leads tells whether rows may be searched for by column through an index.
func (t *Table) Leads(ctx context.Context, column string) (bool, error) {
	found, err := t.catalog(ctx, "row.leads", t.dialect.Rows.Leads, 3)
	return slices.ContainsFunc(found, func(r []string) bool { return r[1] == column && r[2] == "1" }), err
}

// Where compares columns with the parameters from $first on.
func (t *Table) Where(columns []string, first int) string {
	return t.equations(columns, first, " AND ")
}

// Set assigns the parameters from $first on to columns.
func (t *Table) Set(columns []string, first int) string {
	return t.equations(columns, first, ", ")
}

func (t *Table) equations(columns []string, first int, sep string) string {
	out := make([]string, len(columns))
	for i, c := range t.dialect.Idents(columns) {
		out[i] = c + " = $" + strconv.Itoa(first+i)
	}
	return strings.Join(out, sep)
}

// catalog reads n columns, as text, of what the engine says of the table; the
// last of them is a number.
func (t *Table) catalog(ctx context.Context, name, text string, n int) ([][]string, error) {
	rows, err := t.dialect.Compile(name, text).Query(ctx, t.pool, t.Schema, t.Name)
	if err != nil {
		return nil, fmt.Errorf("holdfast: reading about table %q: %w", t.Name, err)
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
			return nil, fmt.Errorf("holdfast: reading about table %q: %w", t.Name, err)
		}
		values[n-1] = strconv.Itoa(flag)
		out = append(out, values)
	}
	return out, rows.Err()
}

// Forms are, of the columns of a key, whether they hold text: SQLite takes the
// same bytes as text and as a blob for two keys. On other engines it is empty.
type Forms map[string]bool

// Forms are those of key.
func (t *Table) Forms(key []Column) Forms {
	forms := Forms{}
	for _, c := range key {
		if holdfast.Engine(t.dialect.Name) == holdfast.SQLite && !strings.Contains(c.Type, "INT") {
			forms[c.Name] = !strings.Contains(c.Type, "BLOB")
		}
	}
	return forms
}

// Of is v in the form that the column takes.
func (f Forms) Of(column string, v any) any {
	text, given := f[column]
	if !given {
		return v
	}
	r := reflect.ValueOf(v)
	switch {
	case text && r.Kind() == reflect.Slice && r.Type().Elem().Kind() == reflect.Uint8:
		return string(r.Bytes())
	case !text && r.Kind() == reflect.String:
		return []byte(r.String())
	}
	return v
}
