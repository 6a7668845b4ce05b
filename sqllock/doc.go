// Package sqllock grants leases: locks on keys, kept in the database that the
// program already uses.
//
//	all, err := sqllock.New(ctx, db)
//	locks := all.For("shop-7") // but with holdfast.Options.SingleOwner
//	err = locks.Do(ctx, "settlement/2026-11-21", func(ctx context.Context, lease *sqllock.Lease) error {
//		return locks.InTx(ctx, lease, func(ctx context.Context, tx *sql.Tx) error {
//			return book(ctx, tx)
//		})
//	})
//
// # Promises
//
//   - If a transaction passed [Locker.Guard] and commits, no later lease on the key was granted
//     before the commit. This depends on no clock, and it holds for a process that was stopped
//     for an hour. [Locker.InTx] runs such a transaction.
//   - A lease's context ends before any other caller can be granted the lock, as long as this
//     process runs and the database's clock gains at most the margin on this process's clock
//     within a TTL.
//   - The fencing tokens of a key strictly increase: across releases, restarts and a clock that
//     is set back.
//   - When Release returns nil, no conflicting term was granted before the released term ended.
//
// This package cannot fence a service outside the database. Give that service the token to
// compare, or use package idempotency.
//
// # A lease
//
// A lease is a row under a unique key: the id of an attempt, a fencing token, and an expiry by the
// database's clock. One statement acquires it and one releases it. The row stays after the
// release, because the key's token must only rise. Package reaper deletes rows that were unused
// for long, and keeps a floor: every later token exceeds it.
//
//	        acquire                     release
//	free ────────────> held ──────────────────────────────> free
//	                   │  ^
//	                   └──┘ renewed, after a third of the TTL
//	                   │
//	                   ├─ no renewal committed in time ───> lost ──> free, after the TTL
//	                   ├─ force-released ─────────────────> lost
//	                   └─ guarded by an open transaction ─> held, even after its TTL
//
// One grant is a term: the key and the token. A renewal moves the expiry of a live term. It
// never revives a term that has ended. A process renews its leases together, up to 2,048 in one
// statement.
//
// # The trust window
//
// The lease's context ends at
//
//	start + TTL - margin
//
// where start is when the acquire, or the last committed renewal, was sent. The database counts
// the TTL from when it executed that statement, which is later. The margin covers how much
// faster its clock may run. It is a tenth of the TTL unless [Options].Margin says otherwise.
// Use the context for work outside the database. In a process that was stopped, the context may
// end too late.
//
// # Waiting
//
// [Locker.Acquire] waits, [Locker.TryAcquire] does not. The goroutines of one Locker wait for a
// key in a queue, without a connection, and only the first of them queries the database. A
// release hands the lock to the next of them in one statement. While other processes wait, they
// take turns: a turn is one lease where a release wakes them, and about 20 ms elsewhere.
//
// Between processes there is no order: package fairlock provides one. One goroutine polls for all
// keys of the process, every 2 to 50 ms (2 to 10 ms while the lock changes hands), with one
// statement for up to 256 keys. A release also wakes the processes that wait: on PostgreSQL by a
// notification, and on MySQL and MariaDB by a named lock (GET_LOCK), which the holder's process
// takes once it knows that others wait. That needs up to two connections of a process, and a
// pool of at least eight; a signal that is lost, for example behind a proxy with several
// servers, costs a poll interval.
//
// # Processes that end
//
// The leases of a process that has ended are free after their TTL, and with
// [Options].ReleaseOnDisconnect at once. With that option a lease may be granted some
// milliseconds before the context of a living holder ends, if the server ends its session.
//
// # Limits
//
// A key is 1 to [MaxKey] bytes and is compared byte by byte. Acquiring never joins the caller's
// transaction, whose snapshot may be old. Leases, the locks of package fairlock and those of
// package rowlock are different locks: they do not exclude each other on the same key. Choose
// one kind for a key.
//
// # Errors
//
// This package defines [ErrHeld], [ErrLost], [ErrClosed] and [ErrOtherStore]. Each call
// documents which of them it returns, and when it returns [holdfast.ErrInvalid],
// [holdfast.ErrRetry], [holdfast.ErrUnknown] or others.
package sqllock
