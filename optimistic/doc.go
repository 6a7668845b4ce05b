// Package optimistic updates rows that carry a version, and refuses to
// overwrite what somebody else wrote since a row was read.
//
//	orders, err := optimistic.NewTable[Order](ctx, db, optimistic.TableSpec{
//		Table: "orders", Key: []string{"order_no"}, Version: "version",
//	})
//	err = optimistic.Retry(ctx, db, optimistic.RetryOptions{}, func(ctx context.Context, tx *sql.Tx) error {
//		order, err := orders.GetTx(ctx, tx, Order{Number: "A-17"})
//		if err != nil {
//			return err
//		}
//		order.Refunded += 1250
//		_, err = orders.UpdateTx(ctx, tx, order)
//		return err
//	})
//
// # The version
//
// Each row has a version in a column that is NOT NULL. An integer goes up by
// one with every update and begins at 1; add the column to a table that has
// rows with DEFAULT 1. A UUID column gets a new random UUID. A timestamp is
// refused: two writes within one tick of the clock look like one.
//
// An update or a delete names the version that was read, in its WHERE. It
// touches that row in that version or none, and an update always moves the
// version, also where all values stay the same, so that MySQL's way of counting
// affected rows (clientFoundRows) does not matter. A version that is zero,
// negative, empty or at the end of its type is refused before anything is sent:
// it never means "without the check".
//
// Integer versions of a row that is deleted and inserted again begin at 1
// again, and whoever still holds version 1 of the former row overwrites the
// new one. Where keys come back, use UUIDs.
//
// The check holds between those who make it. An UPDATE past this package that
// does not move the version is not seen by it, unless [Table.Enforce] has the
// database refuse it.
//
// # Named values
//
// A [Register] is compare-and-swap on named values that have no table of their
// own: [Register.Create], [Register.CompareAndSwap], [Register.Delete] by the
// revision that was read, and [Register.Watch].
//
// # Errors
//
// [ErrConflict] ([*ConflictError], with both versions): the row is there in
// another version. [ErrNotFound]: it is not there. [ErrDuplicate]: an insert
// met a row with the same unique key. Each has the table and the row's key, and
// so has [RowError], the database's error on the write of a row.
// [RefusedError], an ErrConflict too: [Table.Enforce] refused it.
// [ErrNotEnforced]: its trigger is not as it should be. [holdfast.ErrInvalid]:
// refused, nothing was sent. [holdfast.ErrRetry]: the engine rolled back, or a
// lock was not to be had; a new transaction may do better.
// [holdfast.ErrUnknown]: the commit may or may not have happened.
//
// After an unknown commit read the row again: an integer version that moved may
// have been moved by another writer, so what must happen once needs a record of
// its own in the same transaction (a row with a unique number, or package
// idempotency).
//
// # Transactions
//
// X runs in a transaction of its own; XTx joins the caller's. When an XTx that
// writes fails with anything but holdfast.ErrInvalid, Holdfast has rolled the
// transaction back: several rows of several tables are written together or not
// at all, and a conflict that the caller forgets to look at cannot become half
// a booking. GetTx leaves the transaction alone when there is no such row. How
// long a lock is waited for in the caller's transaction is the caller's own
// setting (lock_timeout, innodb_lock_wait_timeout, busy_timeout).
//
// # Isolation
//
// Every level is safe, and none lets a conflict be resolved within the
// transaction that met it. Under REPEATABLE READ on MySQL and MariaDB the
// transaction's own reads go on showing the version of its snapshot, so a loop
// that reads again and tries again never ends; what [ConflictError] says is
// read with a lock, which sees past the snapshot. PostgreSQL answers such an
// update with 40001, MariaDB with innodb_snapshot_isolation with 1020 and
// SQLite with BUSY_SNAPSHOT: all of them are holdfast.ErrRetry. [Retry] runs
// the whole read-modify-write again in a new transaction for any of these. It
// has no form inside a caller's transaction, because that cannot be begun again
// from here.
//
// Under READ COMMITTED, read the versioned row first and what depends on it
// afterwards: then an update that succeeds proves that nothing which moves the
// version was committed in between.
package optimistic
