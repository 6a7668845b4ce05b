package rowlock

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect/rowwait"
	"github.com/holdfast-go/holdfast/internal/rowmap"
)

const maxNext = 1000

const (
	// findPage is the maximum number of keys that one read finds. MariaDB turns
	// longer lists of keys into a join.
	findPage = 512
	// findRest is how long NextTx does not ask the pool for a connection after the pool had
	// none free.
	findRest = time.Second
)

// NextTx locks the first n rows (1 to 1000, in the order of the key) that meet
// all conditions, until the caller's transaction ends, and returns them. It skips
// rows that other transactions have locked, and does not wait for them. So workers
// that call NextTx share the rows, and each row is with one worker at a time. Handle
// the rows in the same transaction, so that they no longer meet the conditions when
// it commits:
//
//	lines, err := table.NextTx(ctx, tx, 100, holdfast.Where("file", "=", file), holdfast.Where("state", "=", "new"))
//
// When a worker fails or dies, its rows are free again as soon as its transaction has
// ended. No rows means that no row meets the conditions, or that other workers still
// hold all that do. An index on the columns of the conditions, followed by those of
// the key, keeps the search from reading the whole table.
//
// Call NextTx first in the transaction, and at READ COMMITTED if you can choose. The
// returned rows are the last committed ones, and meet the conditions while they are
// locked. At a higher level:
//
//   - PostgreSQL returns ErrRetry if a row was handled since the transaction's snapshot.
//   - InnoDB also locks the gap behind each row that it skips, and inserts wait there.
//
// On MySQL and MariaDB a plain read on another connection of the pool finds the rows,
// and NextTx then locks them by key. If the pool has no free connection within 100 ms,
// the read runs in the transaction: it shows the transaction's snapshot, and waits for
// other workers at SERIALIZABLE. On SQLite there is one writer, and NextTx waits for
// it.
//
// Errors: [holdfast.ErrInvalid] and [holdfast.ErrNoTx]: the transaction was not
// touched. [holdfast.ErrRetry], [holdfast.ErrTxLost], the cause of ctx, and the
// driver's: Holdfast has rolled tx back.
func (t *Table[R, Tx]) NextTx(ctx context.Context, tx Tx, n int, conds ...holdfast.Cond) (rows []R, err error) {
	ctx, op := t.startSpan(ctx, "row.next")
	defer func() { op.Rows = int64(len(rows)); op.End(err, acquired) }()
	if n < 1 || n > maxNext {
		return nil, invalid("n", fmt.Sprintf("%d is not between 1 and %d", n, maxNext))
	}
	f, err := t.filter(conds)
	if err != nil {
		return nil, err
	}
	err = inTx(ctx, &t.locks, tx, rowwait.Forever, 0, lockOf{table: t.mapping.Name}, func(w *rowwait.Wait) (err error) {
		if err := w.LockAll(ctx); err != nil {
			return err
		}
		rows, err = t.next(ctx, w, n, f)
		return err
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// next finds and locks the rows, with one statement if the engine can.
func (t *Table[R, Tx]) next(ctx context.Context, w *rowwait.Wait, n int, f filter) ([]R, error) {
	if stmt, ok := w.Next("rows.next", t.columns+t.first(f.where, n)); ok {
		return t.scan(ctx, stmt, w, f.values)
	}
	return t.nextByKey(ctx, w, n, f)
}

// filter is a checked list of conditions: its text with the first parameters, and
// their values.
type filter struct {
	where  string
	values []any
}

func (t *Table[R, Tx]) filter(conds []holdfast.Cond) (f filter, err error) {
	list := make([]rowmap.Condition, len(conds))
	for i, c := range conds {
		list[i] = rowmap.Condition(c)
		value, err := t.checked(rowmap.Condition(c))
		if err != nil {
			return filter{}, err
		}
		f.values = append(f.values, value)
	}
	if f.where = t.mapping.Conditions(list, 1); f.where == "" {
		f.where = "1 = 1"
	}
	return f, nil
}

// checked returns the value of a condition in the form that its column takes.
func (t *Table[R, Tx]) checked(c rowmap.Condition) (any, error) {
	argument, column, err := t.mapping.Check(c)
	if err != nil {
		return nil, err
	}
	if rowmap.Plain(c.Value) == nil {
		return nil, invalid(argument, "nothing equals NULL: give the column a value that stands for it, and compare with that value")
	}
	if err := rowmap.CheckKind(argument, column, reflect.TypeOf(c.Value)); err != nil {
		return nil, err
	}
	value := t.forms.Of(c.Column, c.Value)
	if b, ok := value.([]byte); ok && (strings.Contains(column.Type, "char") || strings.Contains(column.Type, "text")) {
		value = string(b) // pgx's simple protocol would send hex digits
	}
	return value, nil
}

// nextByKey finds the keys of rows that meet the conditions, and locks those rows
// that still do, until there are n.
func (t *Table[R, Tx]) nextByKey(ctx context.Context, w *rowwait.Wait, n int, f filter) (rows []R, err error) {
	var after []any
	for page := n; ; page *= 2 { // other workers may hold many rows
		page = min(page, findPage)
		keys, err := t.find(ctx, w, page, f, after)
		if err != nil || len(keys) == 0 {
			return rows, err
		}
		locked, err := t.lockKeys(ctx, w, n-len(rows), f, keys)
		if err != nil {
			return nil, err
		}
		if rows = append(rows, locked...); len(rows) == n || len(keys) < page {
			return rows, nil
		}
		after = keys[len(keys)-1]
	}
}

// find reads the next keys after one, of rows that meet the conditions. It prefers
// another connection: in the transaction the read would fix the snapshot or show an
// old one, and would lock rows at SERIALIZABLE.
func (t *Table[R, Tx]) find(ctx context.Context, w *rowwait.Wait, page int, f filter, after []any) (keys [][]any, err error) {
	args := append(slices.Clone(f.values), after...)
	stmt := w.Find("rows.find", t.keysAfter(f, len(after) > 0, page))
	read := func(q core.Querier) (err error) {
		keys, err = t.scanKeys(ctx, q, stmt, args)
		return err
	}
	if time.Now().UnixNano() > t.starved.Load() {
		if err := t.waits.OnPool(ctx, "", read); err == nil || ctx.Err() != nil {
			return keys, err
		}
		t.starved.Store(time.Now().Add(findRest).UnixNano())
	}
	err = read(w.Querier())
	return keys, err
}

// lockEach is lockKeys with a statement for each row.
func (t *Table[R, Tx]) lockEach(ctx context.Context, w *rowwait.Wait, n int, f filter, keys [][]any) (rows []R, err error) {
	for _, key := range keys {
		one, err := t.lockKeys(ctx, w, 1, f, [][]any{key})
		if err != nil {
			return nil, err
		}
		if rows = append(rows, one...); len(rows) == n {
			break
		}
	}
	return rows, nil
}

// lockKeys locks up to n of the rows that have these keys and still meet the
// conditions, and returns them in the order of the keys.
func (t *Table[R, Tx]) lockKeys(ctx context.Context, w *rowwait.Wait, n int, f filter, keys [][]any) ([]R, error) {
	if w.OneByOne() && len(keys) > 1 {
		return t.lockEach(ctx, w, n, f, keys)
	}
	args := slices.Clone(f.values)
	padded := core.Pad(keys)
	for _, k := range padded {
		args = append(args, k...)
	}
	stmt := w.ByKey("rows.next", t.columns, t.mapping.Index, t.withKeys(f, len(padded), n))
	rows, err := t.scan(ctx, stmt, w, args)
	if w.OneByOne() && w.Left(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	at := make(map[string]int, len(keys))
	for i, k := range keys {
		at[identity(k)] = i
	}
	position := func(r R) int {
		if i, found := at[identity(t.keyOf(&r))]; found {
			return i
		}
		return len(keys) // the key's text has changed to one that is equal
	}
	slices.SortStableFunc(rows, func(a, b R) int { return position(a) - position(b) })
	return rows, nil
}

// identity is a text that differs for different keys of one table.
func identity(key []any) string {
	out := make([]any, len(key))
	for i, v := range key {
		out[i] = rowmap.Plain(v)
	}
	return fmt.Sprintf("%#v", out)
}

// first returns the end of a query for the first n rows that meet a condition.
func (t *Table[R, Tx]) first(where string, n int) string {
	return ` WHERE ` + where + ` ORDER BY ` + strings.Join(t.keys, ", ") + ` LIMIT ` + strconv.Itoa(n)
}

// keysAfter returns a query for the first n keys, or for the n keys after another key.
func (t *Table[R, Tx]) keysAfter(f filter, after bool, n int) string {
	where := f.where
	if after {
		where += ` AND ` + rowmap.After(t.keys, func(i int) string { return "$" + strconv.Itoa(len(f.values)+1+i) })
	}
	return ` ` + strings.Join(t.keys, ", ") + ` FROM ` + t.mapping.Quoted + t.first(where, n)
}

// withKeys returns the condition for rows that have one of the given number of keys.
func (t *Table[R, Tx]) withKeys(f filter, keys, n int) string {
	param := len(f.values)
	one := make([]string, len(t.keys))
	all := make([]string, keys)
	for k := range all {
		for i, c := range t.keys {
			param++
			one[i] = c + " = $" + strconv.Itoa(param)
		}
		all[k] = strings.Join(one, " AND ")
	}
	return ` WHERE (` + strings.Join(all, " OR ") + `) AND ` + f.where + ` LIMIT ` + strconv.Itoa(n)
}

// scan runs a read of whole rows.
func (t *Table[R, Tx]) scan(ctx context.Context, stmt core.Stmt, w *rowwait.Wait, args []any) ([]R, error) {
	rows, err := stmt.Query(ctx, w.Querier(), args...)
	if err != nil {
		return nil, err
	}
	return core.Collect(rows, func(from core.Row) (row R, err error) {
		err = from.Scan(t.mapping.Fields.Dest(reflect.ValueOf(&row).Elem())...)
		return row, err
	})
}

// scanKeys runs a read of keys.
func (t *Table[R, Tx]) scanKeys(ctx context.Context, q core.Querier, stmt core.Stmt, args []any) ([][]any, error) {
	rows, err := stmt.Query(ctx, q, args...)
	if err != nil {
		return nil, err
	}
	return core.Collect(rows, func(from core.Row) ([]any, error) {
		var row R
		if err := from.Scan(t.mapping.KeyFields.Dest(reflect.ValueOf(&row).Elem())...); err != nil {
			return nil, err
		}
		return t.keyOf(&row), nil
	})
}
