package reaper

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/rowmap"
)

// Bounds of Options.Tables.
const (
	MaxTables     = 100
	MaxKeyColumns = 8
	// MaxGrace is the longest TableSpec.Grace.
	MaxGrace = 100 * 365 * 24 * time.Hour
)

// Unit says what a column of the user's own counts, or what time it holds.
type Unit int

// The units. There is none for a text, nor for a time that is written without a
// zone and meant in one that has daylight saving: an hour of it comes twice.
const (
	// Microseconds, Milliseconds and Seconds since 1970, UTC, in an integer column.
	Microseconds Unit = iota + 1
	Milliseconds
	Seconds
	// Timestamp is an instant: timestamptz on PostgreSQL, TIMESTAMP on MySQL and
	// MariaDB, whatever the zone of the session.
	Timestamp
	// TimestampUTC is a time without a zone which every writer means in UTC:
	// timestamp on PostgreSQL, DATETIME on MySQL and MariaDB.
	TimestampUTC
)

// TableSpec names a table of the program's own, whose rows are deleted once they
// have expired.
type TableSpec struct {
	// Table and Schema name the table. Schema "" is the connection's own.
	Table, Schema string
	// Key are the columns of a unique key, such as the primary key, 1 to
	// MaxKeyColumns, each NOT NULL: integers, texts, bytes, UUIDs or dates.
	Key []string
	// Expires is the column that says when a row expires, in Unit. NULL is never.
	// A time before 2000 is never either: it is some other number.
	Expires string
	Unit    Unit
	// Grace is for how much longer a row is kept, so that Expires may be when it
	// was made: at most MaxGrace. Default: 0.
	Grace time.Duration
	// Where are further conditions, all of which a row has to meet.
	Where []Cond
	// Scan reads the whole table at each sweep, in the order of the key, where no
	// index begins with Expires. Default: such a table is refused.
	Scan bool
}

// Cond is a condition on a column; see [Where].
type Cond struct {
	column, operator string
	value            any
}

// Where compares a column with a value: operator is =, <, <=, > or >=, and value an
// integer, a string, a []byte or, for a boolean column of PostgreSQL, a bool, as
// the column's type wants. The value is sent as a parameter. What is NULL in the
// column meets no condition.
func Where(column, operator string, value any) Cond { return Cond{column, operator, value} }

// own are Holdfast's tables, which are not to be named.
var own = []string{"schema", "records", "locks", "floor", "registers", "waiters", "claims", "staged", "steps", "news", "interventions", "sweeps", "migrations"}

// newTable checks a table and makes its task.
func newTable[Tx any](ctx context.Context, db *holdfast.DB[Tx], a *access.Access[Tx], spec TableSpec) (*table, error) {
	if err := spec.check(db.CheckIdent); err != nil {
		return nil, err
	}
	for _, name := range own {
		if quoted := a.Table(name); strings.EqualFold(quoted[strings.LastIndexByte(quoted, '.')+1:], a.Dialect.Ident(spec.Table)) {
			return nil, invalid("TableSpec.Table", "is Holdfast's own: what expires in it is cleared anyhow")
		}
	}
	found, err := rowmap.Describe(ctx, a.Dialect, a.Pool, db.CheckIdent, spec.Schema, spec.Table)
	if err != nil {
		return nil, err
	}
	t := &table{spec: spec, at: found.Quoted, dialect: a.Dialect}
	for _, f := range []func(context.Context, *rowmap.Table) error{t.takeKey, t.takeExpiry, t.takeConds} {
		if err := f(ctx, found); err != nil {
			return nil, err
		}
	}
	if lockable := a.Dialect.RowLocks.Lockable; lockable != "" {
		can, is := false, ""
		if _, err := a.Dialect.Compile("rows.lockable", lockable).QueryRow(ctx, a.Pool, []any{&can, &is}, spec.Schema, spec.Table); err != nil {
			return nil, err
		}
		if !can {
			return nil, &holdfast.UnsupportedError{Engine: a.Dialect.Name, What: "reaping table " + spec.Table, Problem: "its storage engine is " + is + ", which has no row locks: use InnoDB"}
		}
	}
	t.compile(found.Index)
	if err := t.plausible(ctx, a.Pool); err != nil {
		return nil, err
	}
	return t, nil
}

func (s *TableSpec) check(ident func(field, name string) error) error {
	switch {
	case len(s.Key) < 1 || len(s.Key) > MaxKeyColumns:
		return invalid("TableSpec.Key", fmt.Sprintf("has %d columns, which are not 1 to %d", len(s.Key), MaxKeyColumns))
	case s.Unit < Microseconds || s.Unit > TimestampUTC:
		return invalid("TableSpec.Unit", "is missing: say what "+strconv.Quote(s.Expires)+" counts, or what time it holds")
	case s.Grace < 0 || s.Grace > MaxGrace:
		return invalid("TableSpec.Grace", fmt.Sprintf("%v is not between 0 and %v", s.Grace, MaxGrace))
	}
	for i, k := range s.Key {
		if slices.Contains(s.Key[:i], k) {
			return invalid("TableSpec.Key", fmt.Sprintf("names %q twice", k))
		}
		if err := ident("TableSpec.Key", k); err != nil {
			return err
		}
	}
	return ident("TableSpec.Expires", s.Expires)
}

// takeKey checks the columns of the key and notes how each is read and sent.
func (t *table) takeKey(ctx context.Context, found *rowmap.Table) error {
	columns, err := found.Key(ctx, t.spec.Key)
	if err != nil {
		return err
	}
	sql := &t.dialect.Sweep.Table
	for i, c := range columns {
		k := keyColumn{name: t.dialect.Ident(c.Name), read: `{c}`, bind: `{p}`}
		cast, casts := sql.Casts[strings.ToLower(c.Type)]
		switch k.kind = t.kindOf(c); {
		case k.kind != "":
		case casts:
			// With a name of its own: ORDER BY would mean the text otherwise.
			k.kind, k.read, k.bind = "text", cast.Read+` AS holdfast_text_`+strconv.Itoa(i), cast.Bind
		default:
			return invalid("TableSpec.Key", fmt.Sprintf("column %q is of type %s: use an integer, a text, bytes, a UUID or a date", c.Name, c.Type))
		}
		k.read = strings.ReplaceAll(k.read, "{c}", k.name)
		t.key = append(t.key, k)
	}
	return nil
}

// kindOf is "integer", "text" or "bytes", or "" for others. SQLite goes by what a
// type's name contains.
func (t *table) kindOf(c rowmap.Column) string {
	sql := &t.dialect.Sweep.Table
	typ := strings.ToLower(c.Type)
	is := func(types []string) bool {
		return slices.ContainsFunc(types, func(s string) bool {
			return typ == s || holdfast.Engine(t.dialect.Name) == holdfast.SQLite && strings.Contains(typ, s)
		})
	}
	switch {
	case is(sql.Integers):
		return "integer"
	case is(sql.Texts):
		return "text"
	case is(sql.Bytes):
		return "bytes"
	}
	return ""
}

// takeExpiry checks the type of the expiry and that it can be found.
func (t *table) takeExpiry(ctx context.Context, found *rowmap.Table) error {
	c, err := found.Column("TableSpec.Expires", t.spec.Expires)
	if err != nil {
		return err
	}
	sql := &t.dialect.Sweep.Table
	t.scale = 1
	isTime, want := false, ""
	switch t.spec.Unit {
	case Milliseconds:
		t.scale = 1000
	case Seconds:
		t.scale = 1_000_000
	case Timestamp:
		isTime, t.expiry = true, sql.Instant
	case TimestampUTC:
		isTime, t.expiry = true, sql.UTC
	}
	switch typ := strings.ToLower(c.Type); {
	case !isTime && t.kindOf(c) == "integer":
		t.expiry = dialect.IntegerExpiry(sql.Integers, `{p}`)
		if holdfast.Engine(t.dialect.Name) == holdfast.PostgreSQL {
			t.expiry.Right = `{p}::bigint`
		}
	case !isTime:
		want = "an integer column"
	case t.expiry == nil:
		want = "an integer column with another unit: " + sql.NoTime
	case !slices.Contains(t.expiry.Types, typ):
		want = "a column of type " + t.expiry.Types[0]
	}
	if want != "" {
		return invalid("TableSpec.Expires", fmt.Sprintf("column %q is of type %s, and TableSpec.Unit wants %s", c.Name, c.Type, want))
	}
	if t.spec.Scan {
		return nil
	}
	leads, err := found.Leads(ctx, c.Name)
	if err == nil && !leads {
		columns := strings.Join(t.dialect.Idents(append([]string{c.Name}, t.spec.Key...)), ", ")
		err = invalid("TableSpec.Expires", fmt.Sprintf("no index begins with it: CREATE INDEX ON %s (%s), or set Scan to have the whole table read at each sweep", t.at, columns))
	}
	return err
}

// takeConds checks the conditions against their columns.
func (t *table) takeConds(_ context.Context, found *rowmap.Table) error {
	for _, c := range t.spec.Where {
		argument := "Where(" + strconv.Quote(c.column) + ")"
		if !slices.Contains([]string{"=", "<", "<=", ">", ">="}, c.operator) {
			return invalid(argument, fmt.Sprintf("operator %q is none of = < <= > >=", c.operator))
		}
		column, err := found.Column(argument, c.column)
		if err != nil {
			return err
		}
		kind := ""
		switch c.value.(type) {
		case int, int8, int16, int32, int64, uint8, uint16, uint32:
			kind = "integer"
		case string:
			kind = "text"
		case []byte:
			kind = "bytes"
		case bool:
			kind = "bool"
		}
		// The engines compare a number with a text by converting one of them.
		if is := t.kindOf(column); kind == "" || kind != is && (is != "" || !strings.EqualFold(column.Type, kind)) {
			return invalid(argument, fmt.Sprintf("the column is of type %s, which is not compared with a Go %T", column.Type, c.value))
		}
	}
	return nil
}

// TableError is an error in a table of Options.Tables, which ends no pass.
type TableError struct {
	// Table is its name, the schema before it if one was given.
	Table string
	Err   error
}

func (e *TableError) Error() string { return fmt.Sprintf("reaper: table %q: %v", e.Table, e.Err) }

func (e *TableError) Unwrap() error { return e.Err }
