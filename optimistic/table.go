package optimistic

import (
	"context"
	"database/sql/driver"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/rowmap"
)

// TableSpec names a table of the caller's own and its version column.
type TableSpec struct {
	// Table and Schema name the table. Schema "" is the connection's own.
	Table, Schema string
	// Key are the columns of a unique key, such as the primary key. They are
	// what a row is found by, and are never updated.
	Key []string
	// Version is the column that every update moves: an integer (use BIGINT),
	// or a UUID in a uuid, text or 16 byte column. Its field in R is an
	// integer; for a UUID a string or a [16]byte (such as uuid.UUID).
	Version string
}

// Table reads and writes versioned rows. R is a struct whose fields bear
// `db:"column"` tags. It is safe for concurrent use.
type Table[R, Tx any] struct {
	work[Tx]

	spec    TableSpec
	table   *rowmap.Table
	fields  rowmap.Fields // all that are tagged, in order
	key     rowmap.Fields
	values  rowmap.Fields // all but key and version
	forms   rowmap.Forms
	version *counter

	insert, read, now, update, remove core.Stmt
}

// NewTable checks once that the table can be versioned: its columns are there,
// a full unique index stands for the key, and the version column is NOT NULL
// and no timestamp.
//
// Errors: [holdfast.ErrInvalid] says what is refused and what to declare.
func NewTable[R, Tx any](ctx context.Context, db *holdfast.DB[Tx], spec TableSpec) (*Table[R, Tx], error) {
	if db == nil {
		return nil, invalid("db", "is nil")
	}
	t := &Table[R, Tx]{work: workOn(db), spec: spec}
	if err := t.mapFields(); err != nil {
		return nil, err
	}
	if err := t.check(ctx); err != nil {
		return nil, err
	}
	d := t.access.Dialect
	columns := d.Idents(t.fields.Names())
	from, version := ` FROM `+t.table.Quoted, d.Ident(spec.Version)
	key := ` WHERE ` + t.table.Where(spec.Key, 1)
	t.insert = d.Compile("version.insert", `INSERT INTO `+t.table.Quoted+` (`+strings.Join(columns, ", ")+`) VALUES (`+dialect.Params(len(columns))+`)`)
	t.read = d.Compile("version.read", `SELECT `+strings.Join(columns, ", ")+from+key)
	// A plain read of InnoDB's would show the snapshot's version.
	t.now = d.Compile("version.now", `SELECT `+version+from+key+d.Rows.LockClause)
	t.update = t.updateOf(t.values)
	t.remove = d.Compile("version.delete", `DELETE`+from+` WHERE `+t.table.Where(t.condition(), 1))
	return t, nil
}

func (t *Table[R, Tx]) mapFields() (err error) {
	if t.fields, err = rowmap.Of[R](t.db.CheckIdent); err != nil {
		return err
	}
	if t.key, err = t.fields.Pick("TableSpec.Key", t.spec.Key); err != nil {
		return err
	}
	if err := t.db.CheckIdent("TableSpec.Version", t.spec.Version); err != nil {
		return err
	}
	if slices.Contains(t.spec.Key, t.spec.Version) {
		return invalid("TableSpec.Version", "is a column of the key, which is never updated")
	}
	if _, err = t.fields.Pick("TableSpec.Version", []string{t.spec.Version}); err != nil {
		return err
	}
	for _, f := range t.fields {
		if f.Name != t.spec.Version && !slices.Contains(t.spec.Key, f.Name) {
			t.values = append(t.values, f)
		}
	}
	return nil
}

func (t *Table[R, Tx]) check(ctx context.Context) (err error) {
	d := t.access.Dialect
	if t.table, err = rowmap.Describe(ctx, d, t.access.Pool, t.db.CheckIdent, t.spec.Schema, t.spec.Table); err != nil {
		return err
	}
	for _, f := range t.fields {
		c, err := t.table.Column("db tag", f.Name)
		if err != nil {
			return err
		}
		if f.Name == t.spec.Version {
			if t.version, err = newCounter(t.db.Engine(), t.spec.Table, c, f); err != nil {
				return err
			}
		}
	}
	key, err := t.table.Key(ctx, t.spec.Key)
	if err != nil {
		return err
	}
	for i, c := range key {
		if err := checkKind(c, t.key[i].Field.Type); err != nil {
			return err
		}
	}
	t.forms = t.table.Forms(key)
	return nil
}

// checkKind refuses a number as the key of a text column and the other way
// round: MySQL and MariaDB compare them by converting, and 0 equals every text
// that does not begin with a digit.
func checkKind(c rowmap.Column, typ reflect.Type) error {
	const number, text = "number", "text"
	column, field := "", ""
	switch t := strings.ToLower(c.Type); {
	case strings.Contains(t, "int"):
		column = number
	case strings.Contains(t, "char"), strings.Contains(t, "text"), strings.Contains(t, "binary"), strings.Contains(t, "blob"), t == "bytea":
		column = text
	}
	switch k := kindOf(typ); {
	case k >= reflect.Bool && k <= reflect.Float64:
		field = number
	case k == reflect.String, k == reflect.Slice:
		field = text
	}
	if column != "" && field != "" && column != field {
		return invalid("TableSpec.Key", fmt.Sprintf("column %q holds a %s, and the struct's field, a %v, a %s", c.Name, column, typ, field))
	}
	return nil
}

// updateOf sets fields and the version of the row that has the key and the version given.
func (t *Table[R, Tx]) updateOf(fields rowmap.Fields) core.Stmt {
	set := append(fields.Names(), t.spec.Version)
	return t.access.Dialect.Compile("version.update",
		`UPDATE `+t.table.Quoted+` SET `+t.table.Set(set, 1)+` WHERE `+t.table.Where(t.condition(), len(set)+1))
}

func (t *Table[R, Tx]) condition() []string {
	return append(slices.Clone(t.spec.Key), t.spec.Version)
}

// kindOf is the kind of what a field of type typ is sent to the database as.
func kindOf(typ reflect.Type) reflect.Kind {
	v := reflect.Zero(typ)
	if valuer, ok := reflect.TypeAssert[driver.Valuer](v); ok && typ.Kind() != reflect.Pointer {
		value, err := valuer.Value()
		if err != nil || value == nil {
			return reflect.Invalid
		}
		return reflect.TypeOf(value).Kind()
	}
	return v.Kind()
}
