package rowlock

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/dialect/rowwait"
	"github.com/holdfast-go/holdfast/internal/rowmap"
)

// Table locks rows of a table of the program's own. R is a struct whose fields have
// `db:"column"` tags. It is safe for concurrent use and needs no closing.
type Table[R, Tx any] struct {
	locks[Tx]

	mapping *rowmap.Mapping
	forms   rowmap.Forms
	columns string   // all columns, FROM and the table
	keys    []string // the columns of the key, quoted
	byKey   string   // columns, with the condition on the key
	// NextTx does not ask the pool for a connection before starved.
	starved atomic.Int64
}

// NewTable checks that rows of the table can be locked one by one: its columns
// exist, a full unique index exists for the key, and on MySQL and MariaDB the
// storage engine is InnoDB.
//
// Errors: [holdfast.ErrInvalid] says what is refused and what to declare;
// [holdfast.ErrSchema] when Holdfast's tables are missing; [holdfast.ErrUnsupported]
// when the table has no row locks, or on Galera, where a row lock does not reach the
// other nodes (see [holdfast.Options].SingleWriter); the error of ctx; the driver's.
func NewTable[R, Tx any](ctx context.Context, db *holdfast.DB[Tx], spec holdfast.TableSpec) (*Table[R, Tx], error) {
	l, err := open(ctx, db)
	if err != nil {
		return nil, err
	}
	if err := l.reachesAll("row locks"); err != nil {
		return nil, err
	}
	t := &Table[R, Tx]{locks: l}
	if t.mapping, err = rowmap.Map[R](ctx, l.access.Catalog, rowmap.Spec(spec)); err != nil {
		return nil, err
	}
	d := l.access.Dialect
	t.forms = t.mapping.Forms(t.mapping.Columns)
	t.keys = d.Idents(spec.Key)
	t.columns = ` ` + strings.Join(d.Idents(t.mapping.Fields.Names()), ", ") + ` FROM ` + t.mapping.Quoted
	t.byKey = t.columns + ` WHERE ` + t.mapping.Where(spec.Key, 1)
	return t, nil
}

// LockTx locks the rows that have the keys of rows, until the caller's transaction
// ends. It returns them as they are then, in the order given. Only the key fields of
// rows matter. LockTx locks the rows one after the other in the order of their keys,
// so that two calls do not deadlock. If the key's collation treats different texts as
// equal, always write a key in the same form.
//
// If another transaction holds one of the rows, LockTx waits as wait says: see the doc
// of the package. The returned rows are the last committed ones.
// Plain reads of the transaction come from its snapshot at REPEATABLE READ and
// above. PostgreSQL refuses such a transaction with ErrRetry if the row is newer than
// the snapshot. On SQLite there is one writer, so the lock covers everything.
//
// The lock is FOR UPDATE, and on PostgreSQL FOR NO KEY UPDATE, which lets others insert
// rows whose foreign keys refer to the locked one. See
// https://www.postgresql.org/docs/current/explicit-locking.html#LOCKING-ROWS.
//
// Errors: [ErrNotFound], [ErrLockNotAvailable] and [ErrTimeout]: the transaction goes
// on, and rows that come earlier in the order may be locked. [holdfast.ErrInvalid] (a
// key is given twice, for instance) and [holdfast.ErrNoTx]: the transaction was not
// touched. [holdfast.ErrRetry], [holdfast.ErrTxLost], the cause of ctx, and the
// driver's: Holdfast has rolled tx back.
func (t *Table[R, Tx]) LockTx(ctx context.Context, tx Tx, wait time.Duration, rows ...R) ([]R, error) {
	mode, err := modeOf(wait)
	if err != nil {
		return nil, err
	}
	return t.lockTx(ctx, tx, mode, wait, rows)
}

// LockFreeTx does what [Table.LockTx] does, without a wait (SKIP LOCKED): it leaves out the rows
// that other transactions have locked. On SQLite it leaves out all rows while another writer is
// active.
//
// Errors: those of LockTx but [ErrLockNotAvailable] and [ErrTimeout].
func (t *Table[R, Tx]) LockFreeTx(ctx context.Context, tx Tx, rows ...R) ([]R, error) {
	return t.lockTx(ctx, tx, rowwait.Skip, 0, rows)
}

func (t *Table[R, Tx]) lockTx(ctx context.Context, tx Tx, mode rowwait.Mode, wait time.Duration, rows []R) (out []R, err error) {
	ctx, op := t.startSpan(ctx, "row.lock")
	defer func() { op.Rows = int64(len(out)); op.End(err, acquired) }()
	order, err := t.order(rows)
	if err != nil {
		return nil, err
	}
	locked := make([]*R, len(rows))
	err = inTx(ctx, &t.locks, tx, mode, wait, lockOf{table: t.mapping.Name}, func(w *rowwait.Wait) error {
		if err := w.LockAll(ctx); err != nil {
			return err
		}
		for _, k := range order {
			var err error
			if locked[k.index], err = t.lock(ctx, w, mode, k.values); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil && (mode != rowwait.Skip || !errors.Is(err, ErrLockNotAvailable)) {
		return nil, err
	}
	out = make([]R, 0, len(rows))
	for _, r := range locked {
		if r != nil {
			out = append(out, *r)
		}
	}
	return out, nil
}

// lock locks the row that has a key. It returns nil under Skip if another transaction
// holds the row.
func (t *Table[R, Tx]) lock(ctx context.Context, w *rowwait.Wait, mode rowwait.Mode, key []any) (*R, error) {
	var row R
	dest := t.mapping.Fields.Dest(reflect.ValueOf(&row).Elem())
	found, err := w.LockRow(ctx, "rows.lock", t.byKey, dest, key...)
	switch {
	case mode == rowwait.Skip && errors.Is(err, rowwait.ErrNotAvailable):
		return nil, nil
	case err != nil:
		of := lockOf{table: t.mapping.Name, row: key}
		return nil, of.describe(err)
	case !found:
		return nil, &NotFoundError{Table: t.mapping.Name, Row: key}
	}
	return &row, nil
}

// keyOf returns the key of a row in the form in which it is sent.
func (t *Table[R, Tx]) keyOf(row *R) []any {
	return t.mapping.KeyFields.Values(reflect.ValueOf(row).Elem(), t.forms)
}
