package dialect

import "strings"

// Procedure is a procedure that updates one row of a table if it has a version. It runs with the
// rights of the user who made it. The names are not quoted, and Schema is never empty.
//
// Its parameters are the columns of the key, the version that was read, with UUID the new version,
// and the columns to set.
type Procedure struct {
	Schema, Table, Name string
	Key, Set            []ProcedureColumn
	Version             ProcedureColumn
	UUID                bool
	// Roles may read and insert, and update through the procedure alone.
	Roles []string
}

// ProcedureColumn is a column and its type, as Enforce.Types returns it.
type ProcedureColumn struct{ Name, Type string }

// Parameters returns the columns in the order of the procedure's parameters. With UUID, the
// version is there twice.
func (p Procedure) Parameters() []ProcedureColumn {
	all := append([]ProcedureColumn{}, p.Key...)
	all = append(all, p.Version)
	if p.UUID {
		all = append(all, p.Version)
	}
	return append(all, p.Set...)
}

// Update returns the statement of the procedure. column and parameter render a column, and a
// parameter from 1 on.
func (p Procedure) Update(table string, column func(name string) string, parameter func(n int) string) string {
	n := len(p.Key) + 1
	read, next := parameter(n), column(p.Version.Name)+` + 1`
	where := []string{column(p.Version.Name) + ` = ` + read}
	for i, c := range p.Key {
		where = append(where, column(c.Name)+` = `+parameter(i+1))
	}
	if p.UUID {
		n++
		next = parameter(n)
		where = append(where, next+` <> `+read)
	}
	set := []string{column(p.Version.Name) + ` = ` + next}
	for i, c := range p.Set {
		set = append(set, column(c.Name)+` = `+parameter(n+i+1))
	}
	return `UPDATE ` + table + ` SET ` + strings.Join(set, ", ") + ` WHERE ` + strings.Join(where, " AND ")
}

// NotThatVersion is the message of a procedure, to be placed in single quotes.
const NotThatVersion = Refusal + " find the row in this version"
