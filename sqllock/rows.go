package sqllock

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/rowmap"
)

// TableSpec names a table of the program's own whose rows are to be locked.
type TableSpec struct {
	// Table and Schema name the table. Schema "" is the connection's own.
	Table, Schema string
	// Key are the columns of a unique key, such as the primary key: what a row
	// is found by, and the order in which rows are locked.
	Key []string
}

// Table locks rows of a table of the program's own. R is a struct whose fields
// bear `db:"column"` tags. It is safe for concurrent use.
type Table[R, Tx any] struct {
	locker *Locker[Tx]
	spec   TableSpec
	table  *rowmap.Table
	fields rowmap.Fields // all that are tagged, in order
	key    rowmap.Fields
	forms  rowmap.Forms
	tail   string // of the read, after SELECT
	take   core.Stmt
	next   nextRows
}

// NewTable checks once that rows of the table can be locked one by one: its
// columns are there, a full unique index stands for the key, and on MySQL and
// MariaDB its storage engine is InnoDB.
//
// Errors: [holdfast.ErrInvalid] says what is refused and what to declare,
// [holdfast.ErrUnsupported] that the table has no row locks, or that this is
// Galera, where they end at their node (see [holdfast.WithSingleWriter]); ctx's,
// the driver's.
func NewTable[R, Tx any](ctx context.Context, l *Locker[Tx], spec TableSpec) (*Table[R, Tx], error) {
	if l == nil {
		return nil, invalid("l", "is nil")
	}
	if err := l.exclusive("row locks"); err != nil {
		return nil, err
	}
	t := &Table[R, Tx]{locker: l, spec: spec}
	var err error
	if t.fields, err = rowmap.Of[R](l.db.CheckIdent); err != nil {
		return nil, err
	}
	if t.key, err = t.fields.Pick("TableSpec.Key", spec.Key); err != nil {
		return nil, err
	}
	if err := t.check(ctx); err != nil {
		return nil, err
	}
	d := l.access.Dialect
	all := ` ` + strings.Join(d.Idents(t.fields.Names()), ", ") + ` FROM ` + t.table.Quoted
	t.tail = all + ` WHERE ` + t.table.Where(spec.Key, 1)
	t.next = newNextRows(d, t.table, all, spec.Key)
	t.take = d.Compile("rows.take", l.leases.store.texts(d.RowLocks.Take))
	return t, nil
}

func (t *Table[R, Tx]) check(ctx context.Context) (err error) {
	l := t.locker
	t.table, err = rowmap.Describe(ctx, l.access.Dialect, l.access.Pool, l.db.CheckIdent, t.spec.Schema, t.spec.Table)
	if err != nil {
		return err
	}
	for _, f := range t.fields {
		if _, err := t.table.Column("db tag", f.Name); err != nil {
			return err
		}
	}
	key, err := t.table.Key(ctx, t.spec.Key)
	if err != nil {
		return err
	}
	for i, c := range key {
		if err := checkKind("TableSpec.Key", c, t.key[i].Field.Type); err != nil {
			return err
		}
	}
	t.forms = t.table.Forms(t.table.Columns)
	return t.lockable(ctx)
}

// lockable refuses a table on which FOR UPDATE locks nothing and says so to
// nobody.
func (t *Table[R, Tx]) lockable(ctx context.Context) error {
	d := t.locker.access.Dialect
	if d.RowLocks.Lockable == "" {
		return nil
	}
	can, is := false, ""
	_, err := d.Compile("rows.lockable", d.RowLocks.Lockable).QueryRow(ctx, t.locker.access.Pool, []any{&can, &is}, t.spec.Schema, t.spec.Table)
	if err == nil && !can {
		err = &holdfast.UnsupportedError{Engine: d.Name, What: "locking rows of table " + t.spec.Table, Problem: "its storage engine is " + is + ", which has no row locks: use InnoDB"}
	}
	return err
}

// LockTx locks the rows that have the keys of rows, until the caller's
// transaction ends, and returns them as they are then, in the order given; the
// other fields of rows do not matter. They are locked one after the other in the
// order of their keys, so that two such calls do not deadlock. A key whose
// collation takes different texts for equal is best given in one form only.
//
// A row that another transaction has locked is waited for as wait says;
// SkipLocked leaves it out. The rows that come back are the last that were
// committed; what the transaction reads without a lock comes, at REPEATABLE READ
// and above, from its snapshot. PostgreSQL refuses such a transaction where the
// row is newer than that (ErrRetry). On SQLite there is one writer, so the lock
// is on everything; SkipLocked leaves out all rows while there is another one.
//
// Errors: [ErrNotFound], [ErrNotNow] and [ErrTimeout], after which the
// transaction goes on, though rows that come before in the order may be locked;
// [holdfast.ErrInvalid] (a key is given twice) and [holdfast.ErrNoTx], which have
// not touched it; [holdfast.ErrRetry], [holdfast.ErrTxLost], ctx's cause and the
// driver's, after which Holdfast has rolled tx back.
func (t *Table[R, Tx]) LockTx(ctx context.Context, tx Tx, wait Wait, rows ...R) (out []R, err error) {
	ctx, op := t.locker.leases.tell(ctx, "row.lock", "")
	defer func() { op.Rows = int64(len(out)); op.End(err, acquired) }()
	order, err := t.order(rows)
	if err != nil {
		return nil, err
	}
	locked := make([]*R, len(rows))
	err = inTx(ctx, t.locker, tx, wait, func(w *waiting) error {
		w.table = t.spec.Table
		if err := t.takeAll(ctx, w); err != nil {
			return err
		}
		for _, k := range order {
			var err error
			if locked[k.at], err = t.lock(ctx, w, k.values); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil && (wait.mode != skipLocked || !errors.Is(err, ErrNotNow)) {
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

// takeAll locks all rows there are, where there is no other lock.
func (t *Table[R, Tx]) takeAll(ctx context.Context, w *waiting) error {
	if w.sql.Take == "" {
		return nil
	}
	return w.until(ctx, true, func(time.Duration) error {
		_, err := t.take.Exec(ctx, w.q)
		return err
	})
}

// lock locks the row that has a key; nil under SkipLocked when another
// transaction has it.
func (t *Table[R, Tx]) lock(ctx context.Context, w *waiting, key []any) (*R, error) {
	var row R
	w.row = key
	found, err := w.one(ctx, t.tail, func(text string) (bool, error) {
		return w.compile("rows.lock", text).QueryRow(ctx, w.q, t.fields.Dest(reflect.ValueOf(&row).Elem()), key...)
	})
	switch {
	case w.wait.mode == skipLocked && errors.Is(err, ErrNotNow):
		return nil, nil
	case err != nil:
		return nil, err
	case !found:
		return nil, &NotFoundError{Table: t.spec.Table, Row: key}
	}
	return &row, nil
}
