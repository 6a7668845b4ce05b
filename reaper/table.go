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
	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/internal/rowmap"
)

// Bounds of Options.Tables.
const (
	maxTables     = 100
	maxKeyColumns = 8
	maxGrace      = 100 * 365 * 24 * time.Hour
)

// Unit says which unit an integer column counts, or which kind of time a column holds.
type Unit int

// The units. There is none for times stored as text. There is none for a time without a zone
// that is meant in a zone with daylight saving, because one hour occurs twice.
const (
	// Microseconds, Milliseconds and Seconds count from 1970 in UTC, in an integer column.
	Microseconds Unit = iota + 1
	Milliseconds
	Seconds
	// Timestamp is an instant, independent of the session's time zone: timestamptz on
	// PostgreSQL, TIMESTAMP on MySQL and MariaDB.
	Timestamp
	// TimestampUTC is a time without a zone that every writer means in UTC: timestamp on
	// PostgreSQL, DATETIME on MySQL and MariaDB.
	TimestampUTC
)

// Table is a table of the program's own whose expired rows are deleted.
type Table struct {
	// TableSpec names it. Its Key has 1 to 8 columns: integers, texts, bytes, UUIDs or dates.
	holdfast.TableSpec
	// Expires is the column that says when a row expires, in Unit. NULL means never. A time
	// before 2000 means never as well, because such a number is not an expiry.
	Expires string
	Unit    Unit
	// Grace is how much longer a row is kept, so that Expires may be a creation time: 50 ms to
	// 100 years of 365 days. Default: 0.
	Grace time.Duration
	// Where lists further conditions. A row must meet all of them.
	// A value is an integer, a string, a []byte or, for a boolean column of PostgreSQL, a bool.
	Where []holdfast.Cond
	// Scan makes each sweep read the whole table in the order of the key. It is required when
	// no index begins with Expires. Default: New refuses such a table.
	Scan bool
}

// newTable checks a table and makes its task.
func newTable[Tx any](ctx context.Context, db *holdfast.DB[Tx], a *access.Access[Tx], spec Table) (*table, error) {
	if err := spec.check(db.CheckIdent); err != nil {
		return nil, err
	}
	for _, name := range append(slices.Clone(dialect.Tables), "migrations") {
		if quoted := a.Table(name); strings.EqualFold(quoted[strings.LastIndexByte(quoted, '.')+1:], a.Dialect.Ident(spec.Table)) {
			return nil, invalid("TableSpec.Table", "is Holdfast's own: what expires in it is cleared anyhow")
		}
	}
	found, err := rowmap.Describe(ctx, a.Catalog, spec.Schema, spec.Table)
	if err != nil {
		return nil, err
	}
	t := &table{spec: spec, at: found.Quoted, dialect: a.Dialect}
	for _, f := range []func(context.Context, *rowmap.Table) error{t.takeKey, t.takeExpiry, t.takeConds} {
		if err := f(ctx, found); err != nil {
			return nil, err
		}
	}
	t.compile(found.Index)
	if err := t.plausible(ctx, a.Pool); err != nil {
		return nil, err
	}
	return t, nil
}

func (s *Table) check(ident func(field, name string) error) error {
	switch {
	case len(s.Key) < 1 || len(s.Key) > maxKeyColumns:
		return invalid("TableSpec.Key", fmt.Sprintf("has %d columns, which are not 1 to %d", len(s.Key), maxKeyColumns))
	case s.Unit < Microseconds || s.Unit > TimestampUTC:
		return invalid("Table.Unit", "is missing: say what "+strconv.Quote(s.Expires)+" counts, or what time it holds")
	}
	if err := options.Life.Or("the default").UpTo(maxGrace).Check("Table.Grace", s.Grace); err != nil {
		return err
	}
	for i, k := range s.Key {
		if slices.Contains(s.Key[:i], k) {
			return invalid("TableSpec.Key", fmt.Sprintf("names %q twice", k))
		}
		if err := ident("TableSpec.Key", k); err != nil {
			return err
		}
	}
	return ident("Table.Expires", s.Expires)
}

// takeKey checks the columns of the key and notes how each is read and bound.
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
			// The alias must differ from the column: ORDER BY would sort by the text otherwise.
			k.kind, k.read, k.bind = "text", cast.Read+` AS holdfast_text_`+strconv.Itoa(i), cast.Bind
		default:
			return invalid("TableSpec.Key", fmt.Sprintf("column %q is of type %s: use an integer, a text, bytes, a UUID or a date", c.Name, c.Type))
		}
		if sql.Untyped {
			k.kind = "any"
		}
		k.read = strings.ReplaceAll(k.read, "{c}", k.name)
		t.key = append(t.key, k)
	}
	return nil
}

// kindOf returns "integer", "text" or "bytes", or "" for other types. On SQLite a type matches
// if its name contains a known type.
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

// takeExpiry checks the type of the expiry column and that an index begins with it.
func (t *table) takeExpiry(ctx context.Context, found *rowmap.Table) error {
	c, err := found.Column("Table.Expires", t.spec.Expires)
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
		t.expiry = dialect.IntegerExpiry(sql.Integers, sql.IntegerParam)
	case !isTime:
		want = "an integer column"
	case t.expiry == nil:
		want = "an integer column with another unit: " + sql.NoTime
	case !slices.Contains(t.expiry.Types, typ):
		want = "a column of type " + t.expiry.Types[0]
	}
	if want != "" {
		return invalid("Table.Expires", fmt.Sprintf("column %q is of type %s, and TableSpec.Unit wants %s", c.Name, c.Type, want))
	}
	if t.spec.Scan {
		return nil
	}
	leads, err := found.Leads(ctx, c.Name)
	if err == nil && !leads {
		columns := strings.Join(t.dialect.Idents(append([]string{c.Name}, t.spec.Key...)), ", ")
		err = invalid("Table.Expires", fmt.Sprintf("no index begins with it: CREATE INDEX ON %s (%s), or set Scan to have the whole table read at each sweep", t.at, columns))
	}
	return err
}

// takeConds checks the conditions against their columns.
func (t *table) takeConds(_ context.Context, found *rowmap.Table) error {
	t.found = found
	for _, c := range t.spec.Where {
		argument, column, err := found.Check(rowmap.Condition(c))
		if err != nil {
			return err
		}
		kind := ""
		switch c.Value.(type) {
		case int, int8, int16, int32, int64, uint8, uint16, uint32:
			kind = "integer"
		case string:
			kind = "text"
		case []byte:
			kind = "bytes"
		case bool:
			kind = "bool"
		}
		// To compare a number with a text, the engines convert one of them.
		if is := t.kindOf(column); kind == "" || kind != is && (is != "" || !strings.EqualFold(column.Type, kind)) {
			return invalid(argument, fmt.Sprintf("the column is of type %s, which is not compared with a Go %T", column.Type, c.Value))
		}
	}
	return nil
}

// TableError is an error in a table of Options.Tables. It does not end the pass.
type TableError struct {
	// Table is the table's name, after the schema if one was given.
	Table string
	Err   error
}

func (e *TableError) Error() string { return fmt.Sprintf("reaper: table %q: %v", e.Table, e.Err) }

func (e *TableError) Unwrap() error { return e.Err }
