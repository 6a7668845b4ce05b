package similar

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/errcode"
	"github.com/holdfast-go/holdfast/internal/rowmap"
)

// maxColumns bounds Table.Columns and the columns of its key.
const maxColumns = 16

// Table names the rows of one of the program's own tables, such as payments.
type Table struct {
	// TableSpec names the table and a unique key: integers, texts, bytes, UUIDs or dates. The rows
	// are read in its order.
	holdfast.TableSpec

	// Columns make two rows alike, such as order_id and amount: equal values, and none NULL. 1 to 16.
	Columns []string
	// Time is the column with the row's time: a time (without a zone it means UTC), or an integer.
	Time string
	// Unit is what an integer counts since 1970: a microsecond, a millisecond or a second.
	Unit time.Duration
}

// Rows finds rows of a table that are alike and close in time: duplicates from before anything
// refused them. Owner and Name of a are not used. It reads pages of a thousand rows, without a lock.
//
// Errors: [holdfast.ErrInvalid], [holdfast.ErrUnsupported], [holdfast.ErrRetry], errors of the driver.
func Rows(ctx context.Context, db *holdfast.DB[*sql.Tx], t Table, a Filter) (Pairs, error) {
	if err := a.withDefaults(); err != nil {
		return Pairs{}, err
	}
	if len(t.Columns) < 1 || len(t.Columns) > maxColumns || len(t.Key) > maxColumns {
		return Pairs{}, errcode.Invalid("Table.Columns", fmt.Sprintf("has %d columns, 1 to %d are allowed, of the key too", len(t.Columns), maxColumns))
	}
	access := access.Of(db)
	s, err := t.scan(ctx, access.Dialect, func() (*rowmap.Table, error) { return rowmap.Describe(ctx, access.Catalog, t.Schema, t.Table) })
	if err != nil {
		return Pairs{}, err
	}
	f := finder{Filter: a, groups: map[string][]item{}}
	var after []any
	err = f.read(ctx, db.Retryable, func(limit int) (n int, err error) {
		rows, err := s.page(after != nil).Query(ctx, access.Pool, append(slices.Clone(after), limit)...)
		if err != nil {
			return 0, err
		}
		_, err = core.Collect(rows, func(row core.Row) (none struct{}, err error) {
			values := make([]any, len(t.Key)+len(t.Columns))
			var at, now *int64
			dest := []any{&at, &now}
			for i := range values {
				dest = append(dest, &values[i])
			}
			if err := row.Scan(dest...); err != nil {
				return none, err
			}
			n++
			after = s.keep(values[:len(t.Key)])
			if at != nil && now != nil && !slices.Contains(values, nil) {
				key, by := texts(values[:len(t.Key)]), texts(values[len(t.Key):])
				f.add(idempotency.KeyOf(by...), "", by, Occurrence{Key: idempotency.KeyOf(key...)}, *at*s.scale, *now)
			}
			return none, nil
		})
		return n, err
	})
	return f.pairs(), err
}

// scan is a reading of a table in the order of its key.
type scan struct {
	dialect             *dialect.Dialect
	selects, from, keys string
	binds               []string // {p} is the parameter
	names               []string
	bytes               []bool // of the key's columns: their values are bytes, not text
	scale               int64  // µs per unit of the time
}

func (t *Table) scan(ctx context.Context, d *dialect.Dialect, describe func() (*rowmap.Table, error)) (*scan, error) {
	found, err := describe()
	if err != nil {
		return nil, err
	}
	key, err := found.Key(ctx, t.Key)
	if err != nil {
		return nil, err
	}
	at, err := found.Column("Table.Time", t.Time)
	if err != nil {
		return nil, err
	}
	s := &scan{dialect: d, from: ` FROM ` + found.Quoted}
	read, err := s.time(at, t.Unit)
	if err != nil {
		return nil, err
	}
	reads := []string{read, d.Now}
	for i, c := range key {
		name, read, bind := d.Ident(c.Name), `{c}`, `{p}`
		sql := &d.Sweep.Table
		switch cast, casts := sql.Casts[strings.ToLower(c.Type)]; {
		case s.is(c.Type, sql.Integers):
			bind = sql.IntegerParam
		case s.is(c.Type, sql.Texts), s.is(c.Type, sql.Bytes):
		case casts: // the alias must differ from the column: ORDER BY would sort by the text otherwise
			read, bind = cast.Read+` AS holdfast_text_`+strconv.Itoa(i), cast.Bind
		default:
			return nil, errcode.Invalid("TableSpec.Key", fmt.Sprintf("column %q is of type %s: use an integer, a text, bytes, a UUID or a date", c.Name, c.Type))
		}
		s.names, s.binds, s.bytes = append(s.names, name), append(s.binds, bind), append(s.bytes, s.is(c.Type, sql.Bytes))
		reads = append(reads, strings.ReplaceAll(read, "{c}", name))
	}
	for _, name := range t.Columns {
		c, err := found.Column("Table.Columns", name)
		if err != nil {
			return nil, err
		}
		reads = append(reads, d.Ident(c.Name))
	}
	s.selects, s.keys = strings.Join(reads, ", "), strings.Join(s.names, ", ")
	return s, nil
}

// is reports whether a type is one of types. On SQLite a type is one if its name contains it.
func (s *scan) is(typ string, types []string) bool {
	typ = strings.ToLower(typ)
	return slices.ContainsFunc(types, func(t string) bool {
		return typ == t || holdfast.Engine(s.dialect.Name) == holdfast.SQLite && strings.Contains(typ, t)
	})
}

// time returns the SQL that reads the time in its unit.
func (s *scan) time(c rowmap.Column, unit time.Duration) (string, error) {
	sql, typ := &s.dialect.Sweep.Table, strings.ToLower(c.Type)
	s.scale = 1
	for _, e := range []*dialect.Expiry{sql.Instant, sql.UTC} {
		if e != nil && slices.Contains(e.Types, typ) {
			return strings.ReplaceAll(e.Read, "{c}", s.dialect.Ident(c.Name)), nil
		}
	}
	switch {
	case !s.is(c.Type, sql.Integers):
		return "", errcode.Invalid("Table.Time", fmt.Sprintf("column %q is of type %s: use a time or an integer %s", c.Name, c.Type, sql.NoTime))
	case unit != time.Microsecond && unit != time.Millisecond && unit != time.Second:
		return "", errcode.Invalid("Table.Unit", fmt.Sprintf("say what the integer column %q counts: microseconds, milliseconds or seconds", c.Name))
	}
	s.scale = unit.Microseconds()
	return s.dialect.Ident(c.Name), nil
}

// page returns the statement for the first page, or for one after a key.
func (s *scan) page(later bool) core.Stmt {
	where, limit := "", 1
	if later {
		where = ` WHERE ` + rowmap.After(s.names, func(i int) string { return strings.ReplaceAll(s.binds[i], "{p}", "$"+strconv.Itoa(1+i)) })
		limit += len(s.names)
	}
	return s.dialect.Compile("rows.alike", `SELECT `+s.selects+s.from+where+` ORDER BY `+s.keys+` LIMIT $`+strconv.Itoa(limit))
}

// keep copies the values of a key, in the form in which they are bound.
func (s *scan) keep(values []any) []any {
	kept := make([]any, len(values))
	for i, v := range values {
		b, isBytes := v.([]byte)
		switch {
		case isBytes && s.bytes[i]:
			kept[i] = slices.Clone(b)
		case isBytes:
			kept[i] = string(b)
		default:
			kept[i] = v
		}
	}
	return kept
}

func texts(values []any) []string {
	out := make([]string, len(values))
	for i, v := range values {
		switch v := v.(type) {
		case []byte:
			out[i] = string(v)
		case time.Time:
			out[i] = v.UTC().Format(time.RFC3339Nano)
		default:
			out[i] = fmt.Sprint(v)
		}
	}
	return out
}
