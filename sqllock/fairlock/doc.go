// Package fairlock grants locks and permits across all processes in the order in which calls
// requested them.
//
//	locks, err := sqllock.New(ctx, db)
//	fair := fairlock.New(locks.For("service")) // without For with holdfast.Options.SingleOwner
//	err = fair.Do(ctx, "settlement", func(ctx context.Context, lease *sqllock.Lease) error { … })
//
// A lock is either exclusive ([Locker.Acquire]), or shared by consecutive calls of
// [Locker.AcquireShared]. A [Semaphore] grants up to N permits. No call overtakes another, so a
// stream of readers does not starve a writer.
//
// Each grant is a [sqllock.Lease] with a fencing token, a context that ends in time, and a
// guard: see package sqllock.
//
// # Tickets
//
// A call takes a ticket: a row in the database with the call's fencing token and an expiry by
// the database's clock.
//
//	asked ──enter──> waiting ──granted──> held ──release──> gone
//	                    │                   │
//	                    └──── expired ──────┴──> cleared by the next ticket
//
// A ticket enters its key's queue in one transaction, together with other tickets of its
// process. It is granted once its units and the units of all tickets before it fit into the
// capacity. An exclusive lock takes the whole capacity. A granted ticket stays granted until it
// is gone. On PostgreSQL a release grants to the next tickets in the same statement; elsewhere, and
// where that statement came too early to see a ticket, the ticket's process finds its turn by a
// read. Its process renews it like a lease. The ticket of a crashed process is passed over
// after its TTL.
//
// # Limits
//
// A fair lock costs a transaction to acquire and a statement to release. An uncontended lease
// of package sqllock costs one statement each. Locks of this package, semaphores and leases are
// different locks: they do not exclude each other on the same key. Choose one kind for a key.
package fairlock
