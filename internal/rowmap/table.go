package rowmap

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// Table is one of the caller's own tables, as the engine's catalog describes it.
type Table struct {
	Schema, Name string
	// Quoted is the quoted name.
	Quoted  string
	Columns []Column
	// Index is the unique index that the last call of Key found.
	Index string

	dialect *dialect.Dialect
	pool    core.Querier
}

// Column is a column of a Table.
type Column struct {
	Name, Type, Collation string
	Length                int // of a text whose length is declared; else 0
	NotNull               bool
}

// Describe reads a table's description from the catalog. It refuses a table whose rows cannot
// be rolled back, locked or unique. Schema "" means the schema that Open found, so that
// statements do not depend on a session's search path.
func Describe(ctx context.Context, c access.Catalog, schema, name string) (*Table, error) {
	d := c.Dialect
	if err := c.Check("TableSpec.Table", name); err != nil {
		return nil, err
	}
	if schema != "" {
		if err := c.Check("TableSpec.Schema", schema); err != nil {
			return nil, err
		}
	}
	t := &Table{Schema: cmp.Or(schema, c.Schema), Name: name, Quoted: d.Ident(name), dialect: d, pool: c.Pool}
	if t.Schema != "" {
		t.Quoted = d.Ident(t.Schema) + "." + t.Quoted
	}
	if err := t.admit(ctx, c); err != nil {
		return nil, err
	}
	columns, err := t.catalog(ctx, "row.columns", d.Rows.Columns, 5)
	if err != nil {
		return nil, err
	}
	if len(columns) == 0 {
		return nil, invalid("TableSpec.Table", fmt.Sprintf("table %q was not found", name))
	}
	for _, c := range columns {
		length, _ := strconv.Atoi(c[3]) // "" for none
		t.Columns = append(t.Columns, Column{c[0], c[1], c[2], length, c[4] == "1"})
	}
	return t, nil
}

// admit refuses a table whose kind or storage engine cannot keep the promises.
func (t *Table) admit(ctx context.Context, c access.Catalog) error {
	kind := make([]string, 2)
	found, err := t.dialect.Compile("row.kind", t.dialect.Admission.Kind).QueryRow(ctx, t.pool, []any{&kind[0], &kind[1]}, t.Schema, t.Name)
	switch {
	case err != nil:
		return fmt.Errorf("holdfast: reading about table %q: %w", t.Name, err)
	case !found:
		return invalid("TableSpec.Table", fmt.Sprintf("table %q was not found", t.Name))
	}
	if f := t.dialect.Admission.Table(kind); f != nil {
		f.Setting = "table " + t.Name
		return c.Unsupported(*f)
	}
	return nil
}

// Column returns the column with this name. argument names the argument in the error.
func (t *Table) Column(argument, name string) (Column, error) {
	n := slices.IndexFunc(t.Columns, func(c Column) bool { return c.Name == name })
	if n < 0 {
		return Column{}, invalid(argument, fmt.Sprintf("table %q has no column %q", t.Name, name))
	}
	return t.Columns[n], nil
}

// Key returns the columns of a key. It returns an error if no full unique index on exactly
// these columns exists, or if a column allows NULL.
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

// Leads reports whether an index begins with column, so that a search by column can use it.
func (t *Table) Leads(ctx context.Context, column string) (bool, error) {
	found, err := t.catalog(ctx, "row.leads", t.dialect.Rows.Leads, 3)
	return slices.ContainsFunc(found, func(r []string) bool { return r[1] == column && r[2] == "1" }), err
}

// Where returns the comparison of columns with the parameters from $first on.
func (t *Table) Where(columns []string, first int) string {
	return t.equations(columns, first, " AND ")
}

// Set returns the assignment of the parameters from $first on to columns.
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

// catalog runs a query on the engine's catalog and returns its n columns as text. The last
// column must be a number.
func (t *Table) catalog(ctx context.Context, name, text string, n int) ([][]string, error) {
	rows, err := t.dialect.Compile(name, text).Query(ctx, t.pool, t.Schema, t.Name)
	if err != nil {
		return nil, fmt.Errorf("holdfast: reading about table %q: %w", t.Name, err)
	}
	list, err := core.Collect(rows, func(row core.Row) ([]string, error) {
		values := make([]string, n)
		var flag int
		dest := make([]any, n)
		for i := range values {
			dest[i] = &values[i]
		}
		dest[n-1] = &flag
		err := row.Scan(dest...)
		values[n-1] = strconv.Itoa(flag)
		return values, err
	})
	if err != nil {
		return nil, fmt.Errorf("holdfast: reading about table %q: %w", t.Name, err)
	}
	return list, nil
}
