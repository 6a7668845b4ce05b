package leases

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// isWanted reports whether a lease is known to be wanted now.
func isWanted(lease *sqllock.Lease) bool {
	select {
	case <-lease.Wanted():
		return true
	default:
		return false
	}
}

// wanted checks that a lease learns of a call that waits, of this process at once, and that calls which
// try, or have waited for an earlier term, do not count.
func wanted[Tx any](e *env[Tx]) {
	l, other := e.locker("one"), e.locker("other")
	look := func() { access.Locker[interface{ LookForWaiters(ctx context.Context) }](l).LookForWaiters(e.Ctx) }
	mine := e.TryAcquire(l, "k")
	if isWanted(mine) {
		e.Error("nobody waits")
	}
	arrived := make(chan arrival, 3)
	e.queue(e.Ctx, l, "k", 0, 2, arrived)
	if !isWanted(mine) {
		e.Error("a call of this process waits")
	}
	e.MustRelease(mine)
	first := <-arrived
	e.Check(first.err)
	if !isWanted(first.lease) {
		e.Error("another call waits since before")
	}
	e.MustRelease(first.lease)
	second := <-arrived
	e.Check(second.err)
	if isWanted(second.lease) {
		e.Error("no other call waits")
	}

	e.wantHeld(other, "k")
	look()
	if isWanted(second.lease) {
		e.Error("a call that tried does not wait")
	}
	e.queue(e.Ctx, other, "k", 2, 1, arrived)
	select {
	case <-second.lease.Wanted():
	case <-e.Ctx.Done():
		e.Fatal("a call of another process waits")
	}
	e.MustRelease(second.lease)
	third := <-arrived
	e.Check(third.err)
	e.MustRelease(third.lease)

	fresh := e.wantFree(l, "k") // the row of the call that waited stays for three seconds
	e.Must(`DELETE FROM holdfast_waiters`)
	e.Must(`INSERT INTO holdfast_waiters (owner, name, waiter, holder, waiting, expires_at) SELECT owner, name, $1, 'other', 1, granted_at + 3000000 FROM holdfast_locks WHERE owner = '' AND name = $2`, make([]byte, 16), leaseRow("k"))
	e.Must(`UPDATE holdfast_locks SET granted_at = granted_at + 3600000000 WHERE owner = '' AND name = $1`, leaseRow("k"))
	e.Must(`UPDATE holdfast_waiters SET expires_at = expires_at + 3600000000`)
	if isWanted(fresh) {
		e.Error("wanted already")
	}
	if look(); isWanted(fresh) {
		e.Error("the call waited before the term began")
	}
	e.Must(`UPDATE holdfast_waiters SET expires_at = expires_at + 1`)
	if look(); !isWanted(fresh) {
		e.Error("it waits since the term began")
	}
}

// wantedFair checks the same for fair locks and permits: a call that has room does not wait.
func wantedFair[Tx any](e *env[Tx]) {
	l, other := e.locker("one"), e.locker("other")
	look := func() { access.Locker[interface{ LookForWaiters(ctx context.Context) }](l).LookForWaiters(e.Ctx) }
	mine, theirs := fairlock.New(l), fairlock.New(other)
	shared, err := mine.AcquireShared(e.Ctx, "k")
	e.Check(err)
	again, err := theirs.AcquireShared(e.Ctx, "k")
	e.Check(err)
	if isWanted(shared) {
		e.Error("nobody waits")
	}
	if look(); isWanted(shared) {
		e.Error("two readers do not wait for each other")
	}
	arrived := make(chan arrival, 1)
	go func() {
		lease, err := theirs.Acquire(e.Ctx, "k")
		arrived <- arrival{0, lease, err}
	}()
	select {
	case <-shared.Wanted():
	case <-e.Ctx.Done():
		e.Fatal("a writer waits")
	}
	e.MustRelease(shared)
	e.MustRelease(again)
	writer := <-arrived
	e.Check(writer.err)
	e.MustRelease(writer.lease)
}
