package holdfast

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// checkShape refuses Holdfast's tables if they differ from what the migrations made: for
// example, a key is missing after a restore, a trigger or a rule was added, or a table has
// another owner. It ignores missing tables; [DB.CheckSchema] reports those.
func (d *DB[Tx]) checkShape(ctx context.Context, q core.Querier) error {
	if d.shaped.Load() || d.dialect.Admission.Golden == "" {
		return nil
	}
	found, err := d.shape(ctx, q, d.ownNames())
	if err != nil {
		return fmt.Errorf("holdfast: reading the shape of the tables: %w", err)
	}
	if problems := differences(d.dialect.Admission.Golden, d.options.Prefix, found); len(problems) > 0 {
		return &UnsupportedError{
			Engine: d.product, Check: "tables", What: "tables", Value: strings.Join(problems, "; "),
			Problem: "they are not as the migrations made them, so that a key may be executed twice and a lease have two holders (G1, G4)",
			Remedy:  "restore what is missing and remove what was added (holdfast migrate print has each table), or move what is there away and run holdfast migrate up",
		}
	}
	last := dialect.Tables[len(dialect.Tables)-1]
	if slices.ContainsFunc(found, func(l string) bool { return strings.HasPrefix(l, last+" kind") }) {
		d.shaped.Store(true) // the last table exists, so all of them do
	}
	return nil
}

func (d *DB[Tx]) ownNames() []string {
	names := make([]string, len(dialect.Tables))
	for i, name := range dialect.Tables {
		names[i] = d.options.Prefix + name
	}
	return names
}

// aspect is one row of the dialect's query for the shape of tables.
type aspect struct{ table, kind, name, detail string }

// shape returns lines in the form of the golden text: a table, an aspect of it, a name and a
// detail.
func (d *DB[Tx]) shape(ctx context.Context, q core.Querier, names []string) (lines []string, err error) {
	schema := ""
	if d.schema != "" {
		schema = d.dialect.Ident(d.schema) + "."
	}
	text := strings.ReplaceAll(d.dialect.Admission.Shape, "{schema}", schema)
	rows, err := core.Compile("shape", text, d.dialect.QuestionMarks).Query(ctx, q, d.schema, strings.Join(names, ","))
	if err != nil {
		return nil, err
	}
	found, err := core.Collect(rows, func(row core.Row) (a aspect, err error) {
		err = row.Scan(&a.table, &a.kind, &a.name, &a.detail)
		return a, err
	})
	if err != nil {
		return nil, err
	}
	keys := map[[2]string][]string{}
	for _, a := range found {
		table := a.table[len(d.options.Prefix):]
		if a.kind == "unique" { // one row for each column: "01 name"
			at := [2]string{table, a.name}
			keys[at] = append(keys[at], a.detail)
			continue
		}
		lines = append(lines, strings.TrimSpace(strings.Join([]string{table, a.kind, a.name, a.detail}, " ")))
	}
	for at, columns := range keys {
		slices.Sort(columns)
		for i, c := range columns {
			columns[i] = c[3:]
		}
		lines = append(lines, at[0]+" unique "+strings.Join(columns, ", "))
	}
	slices.Sort(lines)
	return lines, nil
}

// differences lists how the tables differ from the golden text. A column that a newer build
// added is no difference if it allows NULL.
func differences(golden, prefix string, found []string) (problems []string) {
	want := strings.Split(strings.TrimSpace(golden), "\n")
	owner := ""
	var there []string
	for _, line := range found {
		f := strings.Fields(line)
		if len(f) > 3 && f[1] == "kind" { // the line includes an owner
			if owner != "" && owner != f[3] {
				problems = append(problems, "table "+prefix+f[0]+" belongs to "+f[3]+", others to "+owner)
			}
			owner, line = f[3], strings.Join(f[:3], " ")
		}
		if f[1] == "kind" {
			there = append(there, f[0])
		}
		added := f[1] == "column" && !strings.HasSuffix(line, " not null") &&
			!slices.ContainsFunc(want, func(w string) bool { return strings.HasPrefix(w, f[0]+" column "+f[2]+" ") })
		if !added && !slices.Contains(want, line) {
			problems = append(problems, "table "+prefix+f[0]+" has "+strings.TrimPrefix(line, f[0]+" "))
		}
	}
	for _, line := range want {
		table := strings.Fields(line)[0]
		if slices.Contains(there, table) && !slices.ContainsFunc(found, func(l string) bool {
			return l == line || strings.HasPrefix(l, line+" ") && strings.HasPrefix(line, table+" kind")
		}) {
			problems = append(problems, "table "+prefix+table+" has no "+strings.TrimPrefix(line, table+" "))
		}
	}
	return problems
}
