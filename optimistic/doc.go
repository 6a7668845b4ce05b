// Package optimistic updates rows that have a version, and refuses to overwrite a row
// that was changed since it was read.
//
//	orders, err := optimistic.New[Order](ctx, db, holdfast.TableSpec{
//		Table: "orders", Key: []string{"order_no"},
//	})
//	err = optimistic.Retry(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
//		order, err := orders.GetTx(ctx, tx, Order{Number: "A-17"})
//		if err != nil {
//			return err
//		}
//		order.Refunded += 1250
//		_, err = orders.UpdateTx(ctx, tx, order)
//		return err
//	})
//
// # What it promises
//
// No lost update: of two writers that read the same version of a row, at most one
// writes. The other gets [ErrConflict] and has written nothing. The promise holds
// between writers that use this package. An UPDATE by other means that leaves the
// version as it is goes unnoticed, unless [Table.Enforce] makes the database refuse it.
//
// Package optimistic/register is compare-and-swap on named values that need no table
// of their own.
//
// # The version
//
// Each row has a version in a column that is NOT NULL (see [Options]). An integer
// begins at 1 and goes up by one with every update. To add the column to a table with
// rows, declare it with DEFAULT 1. A UUID column gets a new random UUID. A timestamp is
// refused: two writes within one tick of the clock would have the same version.
//
// An update or a delete names the version that was read in its WHERE clause, so it
// touches the row in that version or nothing. An update always changes the version,
// also if all values stay the same, so it does not matter how MySQL counts affected
// rows (clientFoundRows). A version that is zero, negative, empty or the last of its
// type is refused before anything is sent. It never means "without the check".
//
// A row that is deleted and inserted again begins at version 1 again. A writer that
// still has version 1 of the old row would overwrite the new one. If keys come back,
// use UUIDs.
//
// # Errors
//
//   - [ErrConflict] ([*ConflictError], with both versions): the row has another version.
//   - [ErrNotFound]: the row does not exist.
//   - [ErrDuplicate]: an insert met a row with the same unique key.
//   - [*RowError]: the database's error on the write of a row.
//   - [*RefusedError], an ErrConflict too: the trigger of [Table.Enforce] refused it.
//   - [ErrNotEnforced]: that trigger is missing, disabled or changed.
//   - [holdfast.ErrInvalid]: an argument was refused, and nothing was sent.
//   - [holdfast.ErrRetry]: the engine rolled back, or a lock could not be acquired in
//     time; a new transaction may succeed.
//   - [holdfast.ErrUnknown]: the commit may or may not have happened.
//
// After an unknown commit read the row again. Another writer may have moved an integer
// version, so work that must happen once needs a record in the same transaction: a row
// with a unique number, or package idempotency.
//
// # Transactions
//
// Insert, Update and Delete run in a transaction of their own. The forms with Tx join
// the caller's transaction. When a write with Tx fails with any error but
// holdfast.ErrInvalid, Holdfast has rolled the transaction back. So several rows are
// written together or not at all, even if the caller ignores the error. But an error of one of
// the caller's own statements must be returned: after a deadlock MySQL and MariaDB have rolled back, and
// commit each later statement alone, these too. GetTx leaves
// the transaction alone when the row does not exist. In the caller's transaction the
// caller's own settings bound the wait for locks (lock_timeout,
// innodb_lock_wait_timeout, busy_timeout).
//
// # Isolation
//
// Every isolation level from READ COMMITTED on is safe. [Retry] and InTx refuse READ UNCOMMITTED; do not give GetTx
// and UpdateTx a transaction that was begun at it, because it may read a version that is rolled back. At none of them can a transaction resolve its own
// conflict: at REPEATABLE READ on MySQL and MariaDB its plain reads keep showing the
// version of its snapshot, so a loop of read and update would never end. [ConflictError]
// comes from a locking read, which reads past the snapshot. PostgreSQL answers such an
// update with 40001, MariaDB with innodb_snapshot_isolation with 1020, and SQLite with
// BUSY_SNAPSHOT; all three are holdfast.ErrRetry. [Retry] runs the whole
// read-modify-write again in a new transaction after any of these. It has no form
// inside a caller's transaction, because only the caller can start that one again.
//
// At READ COMMITTED, read the versioned row first and everything that depends on it
// afterwards. An update that succeeds then proves that no change of the version was
// committed in between.
package optimistic
