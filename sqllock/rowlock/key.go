package rowlock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/rowwait"
	"github.com/holdfast-go/holdfast/internal/lockname"
)

// MaxKey is the maximum length of a key in bytes.
const MaxKey = lockname.MaxKey

// LockTx locks key until the caller's transaction ends. The key needs no row of the
// program's own. Of two transactions that lock it, one waits until the other has
// ended, and then sees what that one has written. wait bounds the wait: see the doc of
// the package.
//
// Call LockTx first in the transaction and outside savepoints. At REPEATABLE READ and
// above the transaction reads from a snapshot: if it is older than the last holder's
// commit, LockTx returns ErrRetry. The first lock or read fixes the snapshot, so this
// may happen to each further key. To lock several keys, use READ COMMITTED and always
// the same order.
//
// On MySQL and MariaDB LockTx makes the key's row on another connection of the pool,
// and waits up to a second for that. If the pool has no free connection within 100 ms,
// it makes the row in the caller's transaction; transactions that start with a new key
// at the same time may then deadlock, which is ErrRetry. With MariaDB's
// innodb_snapshot_isolation, a transaction whose snapshot is older than the row of a
// new key gets ErrRetry once. On SQLite there is one writer, so the lock covers
// everything.
//
// Errors: [ErrLockNotAvailable] and [ErrTimeout], as wait says; [holdfast.ErrInvalid]
// (the key is empty or longer than [MaxKey]); [holdfast.ErrNoTx];
// [holdfast.ErrUnsupported] on Galera: the transaction goes on without the lock.
// [holdfast.ErrRetry]: a deadlock, a serialization failure or an old snapshot;
// [holdfast.ErrTxLost]: the transaction had ended already, for instance after a
// deadlock whose error was ignored; the cause of ctx; the driver's: Holdfast has
// rolled tx back.
func (l *Locker[Tx]) LockTx(ctx context.Context, tx Tx, key string, wait time.Duration) (err error) {
	ctx, op := l.startSpan(ctx, "row.lock_key")
	defer func() { op.End(err, acquired) }()
	name, err := lockname.Of(lockname.Row, l.owner, key)
	if err != nil {
		return err
	}
	mode, err := modeOf(wait)
	if err != nil {
		return err
	}
	return inTx(ctx, &l.locks, tx, mode, wait, lockOf{key: key}, func(w *rowwait.Wait) error {
		return w.LockKey(ctx, name, l.known)
	})
}

// lockOf is the key or the row that a call waits for, as errors name it.
type lockOf struct {
	key, table string
	row        []any
}

// describe turns an error of the wait into one of this package's.
func (l *lockOf) describe(err error) error {
	var late *rowwait.TimeoutError
	switch {
	case errors.Is(err, rowwait.ErrNotAvailable):
		return &LockNotAvailableError{Key: l.key, Table: l.table, Row: l.row}
	case errors.As(err, &late):
		return &TimeoutError{Key: l.key, Table: l.table, Row: l.row, Waited: late.Waited, Blockers: core.Blockers[holdfast.Blocker](late.Blockers)}
	case errors.Is(err, rowwait.ErrOldSnapshot):
		return &holdfast.RetryError{Attempts: 1, Err: err}
	}
	return err
}

// inTx runs f in the caller's transaction. After an error with which the transaction
// does not go on, it rolls the transaction back.
func inTx[Tx any](ctx context.Context, l *locks[Tx], tx Tx, mode rowwait.Mode, wait time.Duration, of lockOf, f func(w *rowwait.Wait) error) error {
	if err := l.reachesAll("row locks"); err != nil {
		return err
	}
	q, err := l.access.Join(tx)
	if err != nil {
		return err
	}
	w := l.waits.New(q, mode, wait)
	if err = w.Alive(ctx); err == nil {
		err = of.describe(f(w))
		if failed := w.End(ctx, goesOn(err)); failed != nil {
			err = failed
		}
	}
	if goesOn(err) {
		return err
	}
	cleanup, cancel := core.Cleanup(ctx)
	defer cancel()
	_ = l.access.Rollback(cleanup, tx) // fails if the connection or the transaction has ended
	return l.rolledBack(ctx, err)
}

// rolledBack says what err means for a transaction that is rolled back.
func (l *locks[Tx]) rolledBack(ctx context.Context, err error) error {
	switch class := l.access.Dialect.Classify(err); {
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

// reachesAll refuses a cluster of several primaries, where a lock ends at its node.
func (l *locks[Tx]) reachesAll(what string) error {
	if !l.access.Dialect.Capabilities.MultiPrimary {
		return nil
	}
	return &holdfast.UnsupportedError{
		Engine: l.access.Dialect.Name, What: what + " on Galera",
		Problem: "a row lock ends at its node, and another node grants it to another transaction: use a lease with Guard, a record or a versioned row, or declare with holdfast.Options{SingleWriter: true} that all programs write to one node",
	}
}

// goesOn reports whether the transaction goes on after err.
func goesOn(err error) bool {
	return err == nil || errors.Is(err, ErrTimeout) || errors.Is(err, ErrLockNotAvailable) || errors.Is(err, ErrNotFound)
}
