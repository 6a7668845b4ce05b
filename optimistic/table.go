package optimistic

import (
	"context"
	"reflect"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/internal/rowmap"
	"github.com/holdfast-go/holdfast/optimistic/internal/work"
)

const defaultVersion = "version"

// Options configure [New]. The zero value of each field is its default.
type Options struct {
	// Version is the column that every update changes: an integer (use BIGINT), or a
	// UUID in a uuid, text or 16-byte column. Its field in R is an integer type; for
	// a UUID a string or a [16]byte (such as uuid.UUID). Default: "version".
	Version string
}

// Table reads and writes versioned rows of a table of the program's own. R is a
// struct whose fields have `db:"column"` tags. It is safe for concurrent use and
// needs no closing.
type Table[R, Tx any] struct {
	work work.Work[Tx]

	spec    holdfast.TableSpec
	column  string // the version's column
	table   *rowmap.Mapping
	given   rowmap.Fields // all fields that an insert writes
	values  rowmap.Fields // those but the key and the version
	forms   rowmap.Forms
	version *counter

	insert, read, readVersion, update, remove core.Stmt
}

// New checks that the rows of a table can be versioned: its columns exist, a full
// unique index exists for the key, and the version column is NOT NULL and no
// timestamp. The columns of the key are never updated.
//
// Errors: [holdfast.ErrInvalid] says what is refused and what to declare;
// [holdfast.ErrUnsupported] when the table's kind or storage engine cannot roll back;
// the error of ctx; the driver's.
func New[R, Tx any](ctx context.Context, db *holdfast.DB[Tx], spec holdfast.TableSpec, opts ...Options) (*Table[R, Tx], error) {
	if db == nil {
		return nil, invalid("db", "is nil")
	}
	o, err := options.One(opts)
	if err != nil {
		return nil, err
	}
	if o.Version == "" {
		o.Version = defaultVersion
	}
	t := &Table[R, Tx]{work: work.On(db), spec: spec, column: o.Version}
	if slices.Contains(spec.Key, t.column) {
		return nil, invalid("Options.Version", "is a column of the key, which is never updated")
	}
	if t.table, err = rowmap.Map[R](ctx, t.work.Access.Catalog, rowmap.Spec(spec)); err != nil {
		return nil, err
	}
	if err := t.mapVersion(); err != nil {
		return nil, err
	}
	t.forms = t.table.Forms(t.table.KeyColumns)
	t.compile()
	return t, nil
}

// mapVersion finds the version's column and field, and the fields that an update
// writes.
func (t *Table[R, Tx]) mapVersion() error {
	fields, err := t.table.Fields.Pick("Options.Version", []string{t.column})
	if err != nil {
		return err
	}
	c, err := t.table.Column("Options.Version", t.column)
	if err != nil {
		return err
	}
	if t.version, err = newCounter(t.work.Access.Dialect.Rows.Version, t.spec.Table, c, reflect.TypeFor[R](), fields[0]); err != nil {
		return err
	}
	t.given, _ = t.table.Fields.Given(t.spec.Key)
	for _, f := range t.given {
		if f.Name != t.column && !slices.Contains(t.spec.Key, f.Name) {
			t.values = append(t.values, f)
		}
	}
	return nil
}

func (t *Table[R, Tx]) compile() {
	d := t.work.Access.Dialect
	columns := d.Idents(t.table.Fields.Names())
	list := strings.Join(columns, ", ")
	from, version := ` FROM `+t.table.Quoted, d.Ident(t.column)
	key := ` WHERE ` + t.table.Where(t.spec.Key, 1)
	given := d.Idents(t.given.Names())
	t.insert = d.Compile("version.insert", `INSERT INTO `+t.table.Quoted+` (`+strings.Join(given, ", ")+`) VALUES (`+dialect.Params(len(given))+`)`)
	t.read = d.Compile("version.read", `SELECT `+list+from+key)
	// With a lock: a plain read on InnoDB would show the snapshot's version.
	t.readVersion = d.Compile("version.now", `SELECT `+version+from+key+d.Rows.LockClause)
	t.update = t.updateOf(t.values)
	t.remove = d.Compile("version.delete", `DELETE`+from+` WHERE `+t.table.Where(t.condition(), 1))
}

// updateOf returns the statement that updates fields and the version, for a row with a given
// version.
func (t *Table[R, Tx]) updateOf(fields rowmap.Fields) core.Stmt {
	set := append(fields.Names(), t.column)
	return t.work.Access.Dialect.Compile("version.update",
		`UPDATE `+t.table.Quoted+` SET `+t.table.Set(set, 1)+` WHERE `+t.table.Where(t.condition(), len(set)+1))
}

// condition returns the columns by which a write finds a row with a given version.
func (t *Table[R, Tx]) condition() []string {
	return append(slices.Clone(t.spec.Key), t.column)
}
