// Package shape reads how Holdfast's own tables are made, and compares that with what the migrations
// make.
package shape

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// Line begins a row of Admission.Lines, if the dialect's query has them.
const Line = "servers line\t"

// aspect is one row of the dialect's query for the shape of tables.
type aspect struct{ table, kind, name, detail string }

// Read returns lines in the form of the golden text: a table without its prefix, an aspect of it, a
// name and a detail. On an engine whose tables have owners, the detail of a table's kind is its owner.
// tables are names without the prefix; those that do not exist have no line.
func Read(ctx context.Context, q core.Querier, d *dialect.Dialect, schema, prefix string, tables []string) (lines []string, err error) {
	qualifier := ""
	if schema != "" {
		qualifier = d.Ident(schema) + "."
	}
	names := make([]string, len(tables))
	for i, t := range tables {
		names[i] = prefix + t
	}
	text := strings.ReplaceAll(d.Admission.Shape, "{schema}", qualifier)
	rows, err := core.Compile("shape", text, d.QuestionMarks).Query(ctx, q, schema, strings.Join(names, ","))
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
		if a.kind == "line" { // of Admission.Lines
			lines = append(lines, Line+a.name+"\t"+a.detail)
			continue
		}
		table := a.table[len(prefix):]
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

// Owner returns the table and the owner of a line that says what a table is, on an engine whose tables
// have owners. Of other lines, and on other engines, the owner is "".
func Owner(line string) (table, owner string) {
	f := strings.SplitN(line, " ", 4)
	if len(f) < 4 || f[1] != "kind" {
		return f[0], ""
	}
	return f[0], f[3]
}

// Differences lists how the tables differ from the golden text. A column that a newer build
// added is no difference if it allows NULL.
func Differences(golden, prefix string, found []string) (problems []string) {
	want := strings.Split(strings.TrimSpace(golden), "\n")
	wanted := make(map[string]bool, len(want))
	for _, line := range want {
		wanted[line] = true
	}
	is := make(map[string]bool, len(found))
	owner := ""
	var there []string
	for _, line := range found {
		f := strings.Fields(line)
		is[line] = true
		if table, of := Owner(line); of != "" {
			if owner != "" && owner != of {
				problems = append(problems, "table "+prefix+table+" belongs to "+of+", others to "+owner)
			}
			owner, line = of, strings.TrimSuffix(line, " "+of)
		}
		if f[1] == "kind" {
			there = append(there, f[0])
		}
		if wanted[line] {
			continue
		}
		if !isAddition(line, f, want) {
			problems = append(problems, "table "+prefix+f[0]+" has "+strings.TrimPrefix(line, f[0]+" "))
		}
	}
	for _, line := range want {
		if is[line] {
			continue
		}
		table, what, _ := strings.Cut(line, " ")
		withOwner := func(l string) bool { return strings.HasPrefix(l, line+" ") }
		if slices.Contains(there, table) && (!strings.HasPrefix(what, "kind") || !slices.ContainsFunc(found, withOwner)) {
			problems = append(problems, "table "+prefix+table+" has no "+strings.TrimPrefix(line, table+" "))
		}
	}
	return problems
}

// isAddition reports whether a line, with the fields f, is of a column that is not wanted and allows NULL.
func isAddition(line string, f, want []string) bool {
	if f[1] != "column" || strings.HasSuffix(line, " not null") {
		return false
	}
	name := f[0] + " column " + f[2] + " "
	return !slices.ContainsFunc(want, func(w string) bool { return strings.HasPrefix(w, name) })
}
