package migrations

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/shape"
	"github.com/holdfast-go/holdfast/internal/stdhandle"
)

// versions is the name of golang-migrate's table, without the prefix.
const versions = "migrations"

// A relation that has one of Holdfast's names may belong to another user: each user who may create in the schema
// can make it before the migrations do, with a trigger, a rule or a view whose functions then run with
// the rights of the migrating user. So nothing is read from it or written to it before it was checked.

// trustVersions refuses a table of versions that would run code when it is read or written.
func (d *driver) trustVersions() error { return d.refuse(d.runs, versions) }

// trustPlain refuses tables that would run code when they are written.
func (d *driver) trustPlain() error { return d.refuse(d.runs, dialect.Tables...) }

// trust refuses tables that differ from what the migrations make, and so from what they go on with.
func (d *driver) trust() error {
	return d.refuse(func(lines []string) []string {
		return append(shape.Differences(d.layout.dialect.Admission.Golden, d.layout.prefix, lines), d.foreign(lines)...)
	}, dialect.Tables...)
}

// runs lists what runs code when a table is read or written.
func (d *driver) runs(lines []string) (problems []string) {
	for _, l := range lines {
		f := strings.Fields(l)
		if f[1] != "column" && f[1] != "unique" && (f[1] != "kind" || !slices.Contains(d.engine.kinds, f[2])) {
			problems = append(problems, "table "+d.layout.prefix+f[0]+" has "+strings.TrimPrefix(l, f[0]+" "))
		}
	}
	return append(problems, d.foreign(lines)...)
}

// foreign lists the tables of other users, who may add a trigger at any moment. Without the migrations'
// lock nothing is written, and reading a plain table is safe.
func (d *driver) foreign(lines []string) (problems []string) {
	for _, l := range lines {
		if table, owner := shape.Owner(l); d.locked && owner != "" && owner != d.user {
			problems = append(problems, "table "+d.layout.prefix+table+" belongs to "+owner+", and this is "+d.user)
		}
	}
	return problems
}

func (d *driver) refuse(find func(lines []string) []string, tables ...string) error {
	if d.engine.kinds == nil || d.down && tables[0] != versions {
		return nil // nothing is kept of the tables that are dropped
	}
	lines, err := shape.Read(d.ctx, stdhandle.Querier{R: d.conn}, &d.layout.dialect, d.schema, d.layout.prefix, tables)
	if err != nil {
		return fmt.Errorf("reading what is there: %w", err)
	}
	return d.distrust(find(lines))
}

// trustFunctions refuses functions of other users. The caller has the migrations' lock.
func (d *driver) trustFunctions(f *functionSet) error {
	if f.foreign == "" {
		return nil
	}
	names := append(f.all(d.layout), d.layout.prefix+"calls", d.layout.prefix+"schema")
	rows, err := stdhandle.Querier{R: d.conn}.Query(d.ctx, f.foreign, d.schema, strings.Join(names, ","))
	if err != nil {
		return fmt.Errorf("reading what is there: %w", err)
	}
	problems, err := core.Collect(rows, func(r core.Row) (problem string, err error) {
		err = r.Scan(&problem)
		return problem, err
	})
	if err != nil {
		return fmt.Errorf("reading what is there: %w", err)
	}
	return d.distrust(problems)
}

func (d *driver) distrust(problems []string) error {
	if len(problems) == 0 {
		return nil
	}
	return &holdfast.UnsupportedError{
		Engine: d.layout.dialect.Name, Check: "tables", What: "tables", Value: strings.Join(problems, "; "),
		Problem: "migrations did not make them, or somebody changed them since: with them, code of another user could run with the rights of this one",
		Remedy:  "find out who made them, and drop or rename them; migrate tables of your own as their owner, or change it with ALTER TABLE ... OWNER TO",
	}
}
