package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// LockTx locks key until the caller's transaction ends. The key needs no row of
// the program's own; of two transactions that lock it, one waits until the
// other has ended, and then sees what that has written. It is no lease: keys of
// [Locker.Acquire] are others, and nothing fences but the transaction itself.
//
// Call it first in the transaction and outside savepoints. A transaction at
// REPEATABLE READ or above reads from a snapshot; where that is older than the
// last holder's commit, the lock is refused with ErrRetry, for what the
// transaction then reads would be old. This is so of each further key as well,
// since the first one's lock or read has fixed the snapshot: several keys are
// best locked at READ COMMITTED, always in one order.
//
// On MySQL and MariaDB the key's row is made on another connection of the pool,
// within a second whatever the wait. Where there is none to be had within 100
// ms, it is made in the caller's transaction; then transactions that come
// together at a new key may deadlock, which is ErrRetry. With MariaDB's
// innodb_snapshot_isolation a new key is refused to a snapshot that is older
// than its row, once. On SQLite there is one writer, so the lock is on
// everything. On Galera it is refused, unless there is a single writer (see
// [holdfast.WithSingleWriter]).
//
// Errors: [ErrNotNow] and [ErrTimeout], as wait says; [holdfast.ErrRetry]: a
// deadlock, a serialization failure, an old snapshot; [holdfast.ErrTxLost]: the
// transaction had ended, as after a deadlock whose error was passed over;
// [holdfast.ErrInvalid] (the key is empty or longer than [MaxKey]);
// [holdfast.ErrNoTx]; [holdfast.ErrUnsupported] on Galera; ctx's cause; the
// driver's. After ErrNotNow, ErrTimeout, ErrInvalid, ErrNoTx and ErrUnsupported
// the transaction goes on without the lock. After every other error Holdfast has rolled tx back.
func (l *Locker[Tx]) LockTx(ctx context.Context, tx Tx, key string, wait Wait) (err error) {
	ctx, op := l.leases.tell(ctx, "row.lock_key", "")
	defer func() { op.End(err, acquired) }()
	name, err := nameOf(kindRow, key)
	if err != nil {
		return err
	}
	return inTx(ctx, l, tx, wait, func(w *waiting) error {
		w.key = key
		a := &anchor[Tx]{waiting: w, locker: l, name: name}
		if w.sql.Hold == "" {
			return a.lock(ctx)
		}
		return a.hold(ctx)
	})
}

// inTx runs f in the caller's transaction, which goes on after a wait that is
// over, and is rolled back after any other error.
func inTx[Tx any](ctx context.Context, l *Locker[Tx], tx Tx, wait Wait, f func(w *waiting) error) error {
	if err := wait.check(); err != nil {
		return err
	}
	if err := l.exclusive("row locks"); err != nil {
		return err
	}
	q, err := l.access.Join(tx)
	if err != nil {
		return err
	}
	w := newWaiting(l.access.Dialect, q, wait)
	if err = l.alive(ctx, w); err == nil {
		err = f(w)
		if goesOn(err) {
			if undone := w.restore(ctx); undone != nil {
				err = undone
			}
		} else {
			_ = w.restore(ctx) // it may be the connection's
		}
		if w.is != w.was && w.sql.BoundOutlives {
			w.mend(ctx, l.access.OnConn)
		}
	}
	if goesOn(err) {
		return err
	}
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), holdfast.CleanupTimeout)
	defer cancel()
	_ = l.access.Rollback(cleanup, tx) // the connection is gone, or the transaction was
	switch class := w.classify(err); {
	case errors.Is(err, holdfast.ErrTxLost):
		return err
	case class == dialect.Gone, errors.Is(err, sql.ErrTxDone):
		return &holdfast.TxLostError{Err: err}
	case ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)):
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	case class == dialect.Retry, class == dialect.Busy:
		return &holdfast.RetryError{Attempts: 1, Err: err}
	}
	return err
}

// exclusive refuses locks that would keep nobody on another node out.
func (l *Locker[Tx]) exclusive(what string) error {
	if !l.access.Dialect.Capabilities.MultiPrimary {
		return nil
	}
	return &holdfast.UnsupportedError{
		Engine: l.access.Dialect.Name, What: what + " on Galera",
		Problem: "they end at their node, so that another node grants the same rows to another transaction: use a lease with Guard, a record or a versioned row, or declare with holdfast.WithSingleWriter that all programs write to one node",
	}
}

func goesOn(err error) bool {
	return err == nil || errors.Is(err, ErrTimeout) || errors.Is(err, ErrNotNow) || errors.Is(err, ErrNotFound)
}

// alive finds a transaction that has ended already.
func (l *Locker[Tx]) alive(ctx context.Context, w *waiting) error {
	if w.sql.Begin == "" {
		return l.access.Alive(ctx, w.q)
	}
	if ended := w.exec(ctx, w.sql.Begin) == nil; ended {
		_ = w.exec(ctx, `ROLLBACK`)
		return &holdfast.TxLostError{}
	}
	return nil
}
