// Package rowlock locks keys, and rows of the program's own tables, until the
// caller's transaction ends.
//
//	all, err := rowlock.New(ctx, db)
//	locks := all.For("shop-7") // but with holdfast.Options.SingleOwner
//	err = db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
//		if err := locks.LockTx(ctx, tx, "settlement/2026-11-21", holdfast.Forever); err != nil {
//			return err
//		}
//		return settle(ctx, tx)
//	})
//
// # What it promises
//
// Of two transactions that lock the same key or row, one waits until the other has
// ended, and then sees what the other has written. The database releases the lock
// with the transaction: at COMMIT, at ROLLBACK, or when the connection ends. There is
// no TTL, no renewal and no fencing token, because the transaction itself is the
// fence. Nothing needs closing.
//
// Four things can be locked:
//
//   - [Locker.LockTx]: a key that needs no row of the program's own.
//   - [Table.LockTx], [Table.LockFreeTx]: rows of a table of the program's own, by their
//     keys.
//   - [Table.NextTx]: the next rows that meet conditions and are not locked, as for a
//     queue of work.
//   - [Locker.Hold]: a key for as long as a connection lives, without a transaction of
//     the caller's. The lock is a [SessionLock].
//
// LockTx and Hold lock the same keys. A lease, a fair lock or a semaphore with the
// same key is another lock: use one family of locks for a key.
//
// # Waiting
//
// The wait of a call is 1 ms to 24 h. When it is over, the call returns [ErrTimeout]. It
// bounds the whole call, as ctx does, and is rounded up to milliseconds, on MySQL and
// MariaDB to at least 20 ms. [holdfast.NoWait] returns [ErrLockNotAvailable] at once if
// another transaction holds the lock. [holdfast.Forever], or 0, waits until ctx ends. The
// wait replaces the transaction's own lock timeout, which is unchanged afterwards. After
// a wait that ended without the lock, the transaction goes on.
//
// When ctx ends, the server stops waiting: at once on PostgreSQL and SQLite, within half a
// second on MySQL and MariaDB. Until it has learned of it, a call that does not wait, such
// as NextTx, finds the rows of the transaction locked: it may pass over one that the
// program thinks free.
//
// [Table.LockFreeTx] and [Table.NextTx] leave out rows that other transactions have locked.
//
// # Isolation
//
// Lock first in the transaction. At REPEATABLE READ and above the transaction reads
// from a snapshot. If that snapshot is older than the last holder's commit, the lock
// is refused with [holdfast.ErrRetry]: later reads of the transaction would miss what
// the holder has written. At READ COMMITTED this cannot happen. A key that nobody has locked for
// [github.com/holdfast-go/holdfast/reaper.Options.LockGrace] (an hour) is forgotten, and a snapshot that is older than that is not refused.
//
// # Limits
//
// A key has 1 to [MaxKey] bytes and is compared byte by byte. NextTx locks up to
// 1000 rows. SQLite has one writer, so there every lock covers the whole database, and
// Hold is refused. On Galera a row lock does not
// reach the other nodes, so all of them are refused, unless all programs write to one
// node (see [holdfast.Options].SingleWriter).
//
// # Errors
//
// [ErrLockNotAvailable], [ErrTimeout] and [ErrNotFound]: the transaction goes on.
// [holdfast.ErrInvalid], [holdfast.ErrNoTx] and [holdfast.ErrUnsupported]: the
// transaction was not touched. After every other error Holdfast has rolled the
// transaction back: [holdfast.ErrRetry] (a deadlock, a serialization failure, an old
// snapshot), [holdfast.ErrTxLost] (the transaction had ended already), the cause of
// ctx, and the driver's. [ErrLost] says that a SessionLock ended before its release.
package rowlock
