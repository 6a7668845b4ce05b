// Package sqllock locks keys in the database that the program already uses.
//
//	locks, err := sqllock.New(ctx, db, sqllock.Options{})
//	err = locks.Do(ctx, "settlement/2026-11-21", func(ctx context.Context, lease *sqllock.Lease) error {
//		return db.InTx(outer, holdfast.TxOptions{}, func(ctx context.Context, tx *sql.Tx) error {
//			if err := locks.Guard(ctx, tx, lease.Term()); err != nil {
//				return err
//			}
//			return book(ctx, tx)
//		})
//	})
//
// # Leases
//
// A lease is a row under a unique key, with an owner, a fencing token and an
// expiry by the database's clock. One statement takes it and one gives it back;
// the row stays, because its token must only rise. Acquiring never joins the
// caller's transaction, whose snapshot may be old. [Locker.Acquire] waits,
// [Locker.TryAcquire] does not, [Locker.Do] does the whole of it.
//
// Leases are renewed together in the background, some hundreds in a statement.
// A renewal moves a term that is live, and nothing else: it never brings one
// back.
//
// # The two protections
//
// The lease's context ends before anybody else can be granted the lock, as long
// as this process runs and the database's clock gains at most the margin on its
// stopwatch within a TTL. It is for work outside the database.
//
// [Locker.Guard] does not depend on any clock. It locks the lease's row in the
// caller's transaction, so that this transaction commits only while no later
// term was granted: a process that was stopped for an hour, and then writes, is
// refused. What is written to the database belongs behind a guard.
//
// Nothing here can fence what is outside of both: give the token to a service
// that compares it, or use package idempotency.
//
// # Waiting
//
// The goroutines of one Locker wait in line for a key without a connection, and
// one of them asks the database; a release hands the lock to the next of them
// in one statement. Between processes a lock is looked at every 2 to 50 ms, by
// one goroutine and with one statement for up to 256 keys. After a second of
// passing a lock on within itself a process leaves it to others for a moment.
//
// # Fair, shared, several
//
// [Locker.Fair] and [Locker.Semaphore] grant in the order of asking, over all
// processes: a lock to one, or to all who share it; or up to N permits. Each
// grant is a [Lease] like any other, with a token, a trust window and a guard.
// A call has a row in the database from when it stands in line, which is renewed
// as a lease's; it costs a transaction to get there and a statement to leave.
// These are other locks than the leases on the same key: choose one for a key.
//
// # Keys and tokens
//
// A key is its exact bytes, 1 to [MaxKey] of them. Tokens of a key strictly
// increase: they follow the database's clock, and go on from the last one where
// that has stepped back. package reaper removes rows that were not used for
// long and keeps a floor below which no token is granted again.
package sqllock
