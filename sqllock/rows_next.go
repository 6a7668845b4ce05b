package sqllock

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/rowmap"
)

// MaxNext is the most rows that NextTx takes at once.
const MaxNext = 1000

const (
	// findPage is how many keys one read finds at the most. MariaDB turns longer
	// lists of them into a join.
	findPage = 512
	// findRest is how long no connection of the pool is asked for after one was
	// not to be had.
	findRest = time.Second
)

// Cond is a condition on a column of a table's rows; see [Where].
type Cond struct {
	column, operator string
	value            any
}

// Where compares a column with a value: operator is =, <, <=, > or >=. The value
// is sent as a parameter. NULL is refused, as nothing equals it.
func Where(column, operator string, value any) Cond { return Cond{column, operator, value} }

// NextTx locks the first n rows, 1 to [MaxNext], in the order of the key, that
// meet all conditions, until the caller's transaction ends, and returns them as
// they are then. Rows that other transactions have locked are left out, and
// nobody is waited for: workers that take rows this way share them out, each row
// to one of them at a time. Handle the rows in the same transaction, so that
// they no longer meet the conditions when it commits:
//
//	lines, err := table.NextTx(ctx, tx, 100, sqllock.Where("file", "=", file), sqllock.Where("state", "=", "new"))
//
// The rows of a worker that fails or dies are free again when its transaction
// has ended; so no rows means that there are none, or that other workers have
// them still. An index on the columns of the conditions followed by those of the
// key keeps the search from reading the table.
//
// Call it first in the transaction, and at READ COMMITTED where it can be chosen.
// What comes back is the last that was committed, and met the conditions once it
// was locked. Above that level PostgreSQL answers ErrRetry where a row has been
// handled since the transaction's snapshot. On MySQL and MariaDB the rows are
// found by a plain read on another connection of the pool, or, where there is
// none to be had within 100 ms, in the transaction: then from its snapshot, and
// at SERIALIZABLE waiting for those who have them. They are locked by their key,
// and no others, but for one that was handled in between. At REPEATABLE READ
// InnoDB locks the gap behind each row that is left out as well, where inserts
// then wait. On SQLite there is one writer, which is waited for.
//
// Errors: [holdfast.ErrInvalid] and [holdfast.ErrNoTx], which have not touched the
// transaction; [holdfast.ErrRetry], [holdfast.ErrTxLost], ctx's cause and the
// driver's, after which Holdfast has rolled tx back.
func (t *Table[R, Tx]) NextTx(ctx context.Context, tx Tx, n int, conds ...Cond) (rows []R, err error) {
	ctx, op := t.locker.leases.tell(ctx, "row.next", "")
	defer func() { op.Rows = int64(len(rows)); op.End(err, acquired) }()
	if n < 1 || n > MaxNext {
		return nil, invalid("n", fmt.Sprintf("%d is not between 1 and %d", n, MaxNext))
	}
	where, values, err := t.where(conds)
	if err != nil {
		return nil, err
	}
	err = inTx(ctx, t.locker, tx, UntilDone, func(w *waiting) (err error) {
		w.table = t.spec.Table
		if err := t.takeAll(ctx, w); err != nil {
			return err
		}
		if w.sql.ByKey == nil {
			stmt := w.compile("rows.next", w.sql.Select(time.Hour)+t.next.first(where, n)+w.sql.TryClause)
			rows, err = t.scan(ctx, w.q, stmt, values)
			return err
		}
		rows, err = t.nextByKey(ctx, w, n, where, values)
		return err
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// nextByKey finds keys of rows that meet the conditions, and locks those which
// still do, until there are n.
func (t *Table[R, Tx]) nextByKey(ctx context.Context, w *waiting, n int, where string, values []any) (rows []R, err error) {
	var after []any
	for page := n; ; page *= 2 { // behind others' rows there may be many of them
		page = min(page, findPage)
		keys, err := t.find(ctx, w, page, where, values, after)
		if err != nil || len(keys) == 0 {
			return rows, err
		}
		locked, err := t.lockKeys(ctx, w, n-len(rows), where, values, keys)
		if err != nil {
			return nil, err
		}
		if rows = append(rows, locked...); len(rows) == n || len(keys) < page {
			return rows, nil
		}
		after = keys[len(keys)-1]
	}
}

// find reads the keys of rows that meet the conditions, from behind one on. In
// the transaction that would fix its snapshot or come from an old one, and at
// SERIALIZABLE lock what it reads.
func (t *Table[R, Tx]) find(ctx context.Context, w *waiting, page int, where string, values, after []any) (keys [][]any, err error) {
	args := append(slices.Clone(values), after...)
	stmt := w.compile("rows.find", w.sql.Select(time.Hour)+t.next.keys(where, len(values), len(after) > 0, page))
	read := func(q core.Querier) error {
		keys = keys[:0]
		rows, err := stmt.Query(ctx, q, args...)
		return each(rows, err, func() error {
			var row R
			v := reflect.ValueOf(&row).Elem()
			if err := rows.Scan(t.key.Dest(v)...); err != nil {
				return err
			}
			keys = append(keys, t.key.Values(v, t.forms))
			return nil
		})
	}
	if time.Now().UnixNano() > t.next.starved.Load() {
		if err := onPool(ctx, t.locker, poolWait, "", read); err == nil || ctx.Err() != nil {
			return keys, err
		}
		t.next.starved.Store(time.Now().Add(findRest).UnixNano())
	}
	return keys, read(w.q)
}

// lockKeys locks n of the rows that have these keys and meet the conditions
// still, and returns them in the order of the keys.
func (t *Table[R, Tx]) lockKeys(ctx context.Context, w *waiting, n int, where string, values []any, keys [][]any) ([]R, error) {
	args := slices.Clone(values)
	padded := pad(keys)
	for _, k := range padded {
		args = append(args, k...)
	}
	text := t.next.locking(w.sql.ByKey, where, len(values), len(padded), n)
	rows, err := t.scan(ctx, w.q, w.compile("rows.next", w.sql.Select(time.Hour)+text+` FOR UPDATE SKIP LOCKED`), args)
	if err != nil {
		return nil, err
	}
	at := make(map[string]int, len(keys))
	for i, k := range keys {
		at[identity(k)] = i
	}
	place := func(r R) int {
		i, there := at[identity(t.key.Values(reflect.ValueOf(&r).Elem(), t.forms))]
		if !there {
			return len(keys) // its text has changed to one that is equal
		}
		return i
	}
	slices.SortStableFunc(rows, func(a, b R) int { return place(a) - place(b) })
	return rows, nil
}

// identity tells keys that were read from one table apart.
func identity(key []any) string {
	out := make([]any, len(key))
	for i, v := range key {
		out[i] = plain(v)
	}
	return fmt.Sprintf("%#v", out)
}

// scan runs a read of whole rows.
func (t *Table[R, Tx]) scan(ctx context.Context, q core.Querier, stmt core.Stmt, args []any) (out []R, err error) {
	rows, err := stmt.Query(ctx, q, args...)
	return out, each(rows, err, func() error {
		var row R
		if err := rows.Scan(t.fields.Dest(reflect.ValueOf(&row).Elem())...); err != nil {
			return err
		}
		out = append(out, row)
		return nil
	})
}

// each runs f on each of the rows that a query has returned, and closes them.
func each(rows core.Rows, err error, f func() error) error {
	if err != nil {
		return err
	}
	for rows.Next() && err == nil {
		err = f()
	}
	if err == nil {
		err = rows.Err()
	}
	if e := rows.Close(); err == nil {
		err = e
	}
	return err
}

// where is the SQL of conditions, with the parameters from $1 on.
func (t *Table[R, Tx]) where(conds []Cond) (text string, values []any, err error) {
	parts := make([]string, 0, len(conds)+1)
	for i, c := range conds {
		argument := "Where(" + strconv.Quote(c.column) + ")"
		if !slices.Contains([]string{"=", "<", "<=", ">", ">="}, c.operator) {
			return "", nil, invalid(argument, fmt.Sprintf("operator %q is none of = < <= > >=", c.operator))
		}
		column, err := t.table.Column(argument, c.column)
		if err != nil {
			return "", nil, err
		}
		if plain(c.value) == nil {
			return "", nil, invalid(argument, "nothing equals NULL: give the column a value that stands for it, and compare with that")
		}
		if err := checkKind(argument, column, reflect.TypeOf(c.value)); err != nil {
			return "", nil, err
		}
		parts = append(parts, fmt.Sprintf("%s %s $%d", t.locker.access.Dialect.Ident(c.column), c.operator, i+1))
		value := t.forms.Of(c.column, c.value)
		if b, ok := value.([]byte); ok && (strings.Contains(column.Type, "char") || strings.Contains(column.Type, "text")) {
			value = string(b) // which pgx's simple protocol would send as hex digits
		}
		values = append(values, value)
	}
	if len(parts) == 0 {
		parts = []string{"1 = 1"}
	}
	return strings.Join(parts, " AND "), values, nil
}

// nextRows is the SQL of NextTx, after SELECT; where has the first parameters.
type nextRows struct {
	table      *rowmap.Table
	all        string   // the columns and FROM
	keyColumns []string // quoted
	starved    *atomic.Int64
}

func newNextRows(d *dialect.Dialect, table *rowmap.Table, all string, key []string) nextRows {
	return nextRows{table: table, all: all, keyColumns: d.Idents(key), starved: new(atomic.Int64)}
}

// first is that of the first n rows.
func (s *nextRows) first(where string, n int) string {
	return s.all + s.ordered(where, n)
}

func (s *nextRows) ordered(where string, n int) string {
	return ` WHERE ` + where + ` ORDER BY ` + strings.Join(s.keyColumns, ", ") + ` LIMIT ` + strconv.Itoa(n)
}

// keys is that of the first n keys, of those behind one if after.
func (s *nextRows) keys(where string, params int, after bool, n int) string {
	if after {
		where += ` AND ` + keysBehind(s.keyColumns, params+1)
	}
	return ` ` + strings.Join(s.keyColumns, ", ") + ` FROM ` + s.table.Quoted + s.ordered(where, n)
}

// keysBehind is the condition on keys that come after the one of the parameters from
// $first on. Each column is bounded by itself, as indexes want it.
func keysBehind(columns []string, first int) string {
	text := ""
	for i, c := range slices.Backward(columns) {
		p := "$" + strconv.Itoa(first+i)
		if text == "" {
			text = c + " > " + p
		} else {
			text = c + " >= " + p + " AND (" + c + " > " + p + " OR " + text + ")"
		}
	}
	return text
}

// locking is that of n rows out of so many keys.
func (s *nextRows) locking(byKey func(string) string, where string, params, keys, n int) string {
	one := make([]string, len(s.keyColumns))
	all := make([]string, keys)
	for k := range all {
		for i, c := range s.keyColumns {
			params++
			one[i] = c + " = $" + strconv.Itoa(params)
		}
		all[k] = strings.Join(one, " AND ")
	}
	return s.all + byKey(s.table.Index) + ` WHERE (` + strings.Join(all, " OR ") + `) AND ` + where + ` LIMIT ` + strconv.Itoa(n)
}
