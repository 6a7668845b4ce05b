package leases

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// arrival is the result of a waiting call of Acquire.
type arrival struct {
	who   int
	lease *sqllock.Lease
	err   error
}

// waiting returns how many calls wait in a Locker's process.
func waiting(locker any) int {
	return access.Locker[interface{ Waiting() int }](locker).Waiting()
}

// queue starts n calls that wait for a key, one after the other.
func (e *env[Tx]) queue(ctx context.Context, l *sqllock.Locker[Tx], key string, from, n int, arrived chan<- arrival) {
	for i := range n {
		before := waiting(l)
		go func() {
			lease, err := l.Acquire(ctx, key)
			arrived <- arrival{from + i, lease, err}
		}()
		e.Eventually("the call is behind the one before", func() bool { return waiting(l) > before })
	}
}

// leaseLine checks that goroutines of one process get the lock in the order of their calls, each
// with a later token. A call that gives up leaves the queue with its context's cause, and the
// next call moves up.
func leaseLine[Tx any](e *env[Tx]) {
	const key = "line"
	l := e.LockerWith(sqllock.Options{TTL: time.Hour})
	arrived := make(chan arrival, 8)
	last := e.MustAcquire(l, key)
	boom := errors.New("gives up")
	ctx, cancel := context.WithCancelCause(e.Ctx)
	e.queue(e.Ctx, l, key, 0, 2, arrived)
	e.queue(ctx, l, key, 2, 2, arrived)
	e.queue(e.Ctx, l, key, 4, 2, arrived)
	cancel(boom)
	for range 2 {
		if a := <-arrived; !errors.Is(a.err, boom) || a.lease != nil || a.who/2 != 1 {
			e.Errorf("%d gave up, and came back with %v, %v", a.who, a.lease, a.err)
		}
	}
	for _, who := range []int{0, 1, 4, 5} {
		select {
		case a := <-arrived:
			e.Errorf("%d got %v, %v while the lock was held", a.who, a.lease, a.err)
		case <-time.After(20 * time.Millisecond):
		}
		e.MustRelease(last)
		a := <-arrived
		if a.err != nil {
			e.Fatal(a.err)
		}
		if a.who != who || a.lease.Token() <= last.Token() || a.lease.Context().Err() != nil {
			e.Errorf("%d got the lock with token %d after %d, and %d was next", a.who, a.lease.Token(), last.Token(), who)
		}
		last = a.lease
	}
	e.MustRelease(last)
	e.MustRelease(e.wantFree(e.LockerWith(sqllock.Options{}), key))
}

// leaseBetween checks that a process waits for another's release, and for the expiry of a lease
// whose holder is gone. When the first call in the queue gives up while it waits for another
// process, the next call takes its place.
func leaseBetween[Tx any](e *env[Tx]) {
	const key = "between"
	l, other := e.LockerWith(sqllock.Options{TTL: time.Hour}), e.LockerWith(sqllock.Options{TTL: time.Hour})
	held := e.MustAcquire(other, key)
	arrived := make(chan arrival, 4)
	ctx, cancel := context.WithCancel(e.Ctx)
	e.queue(ctx, l, key, 0, 1, arrived)
	e.queue(e.Ctx, l, key, 1, 1, arrived)
	cancel()
	if a := <-arrived; a.who != 0 || !errors.Is(a.err, context.Canceled) {
		e.Errorf("%d came back with %v, %v", a.who, a.lease, a.err)
	}
	e.MustRelease(held)
	a := <-arrived
	if a.err != nil || a.lease.Token() <= held.Token() {
		e.Fatalf("%v, %v after token %d", a.lease, a.err, held.Token())
	}
	e.MustRelease(a.lease)

	dead := e.MustAcquire(other, key, sqllock.AcquireOptions{TTL: time.Second, NoRenewal: true})
	next := e.MustAcquire(l, key)
	if dead.Context().Err() == nil || next.Token() <= dead.Token() {
		e.Errorf("granted with token %d while the lease with token %d was alive", next.Token(), dead.Token())
	}
	e.MustRelease(next)
}

// leaseClose checks that Close ends the leases, frees the locks at once, wakes waiting calls,
// and is final: later calls acquire nothing and leave nothing.
func leaseClose[Tx any](e *env[Tx]) {
	l, other := e.LockerWith(sqllock.Options{TTL: time.Hour}), e.LockerWith(sqllock.Options{TTL: time.Hour})
	keys := []string{"close a", "close b", "close c"}
	var mine []*sqllock.Lease
	for _, key := range keys {
		mine = append(mine, e.MustAcquire(l, key))
	}
	reentrant := sqllock.AcquireOptions{Reentry: sqllock.NewReentry()}
	e.MustAcquire(l, "close again", reentrant)
	mine = append(mine, e.MustAcquire(l, "close again", reentrant)) // Close ends it although it was acquired twice
	others := e.MustAcquire(other, "close other")
	arrived := make(chan arrival, 4)
	e.queue(e.Ctx, l, keys[0], 0, 2, arrived)
	e.queue(e.Ctx, l, others.Key(), 2, 2, arrived)
	if err := l.Close(e.Ctx); err != nil {
		e.Errorf("Close: %v", err)
	}
	for range 4 {
		if a := <-arrived; !errors.Is(a.err, sqllock.ErrClosed) {
			e.Errorf("%d waited, and got %v, %v", a.who, a.lease, a.err)
		}
	}
	for _, lease := range mine {
		e.WantEnded(lease, sqllock.ErrClosed)
		if err := lease.Release(e.Ctx); err != nil {
			e.Errorf("a release after Close: %v", err)
		}
		e.MustRelease(e.wantFree(other, lease.Key()))
	}
	if _, err := l.Acquire(e.Ctx, keys[0]); !errors.Is(err, sqllock.ErrClosed) {
		e.Errorf("Acquire after Close: %v", err)
	}
	if _, err := l.TryAcquire(e.Ctx, keys[0]); !errors.Is(err, sqllock.ErrClosed) {
		e.Errorf("TryAcquire after Close: %v", err)
	}
	e.MustRelease(e.wantFree(other, keys[0]))
	if err := l.Close(e.Ctx); err != nil {
		e.Errorf("Close again: %v", err)
	}
	if held := e.wantHeld(e.LockerWith(sqllock.Options{}), others.Key()); held.Token != others.Token() {
		e.Errorf("another's lock after Close: %+v", held)
	}
	e.MustRelease(others)
}

// leaseCloseInFlight closes a Locker while calls are in progress; no lock remains. The same
// holds for calls that were cancelled just before, as at a program's end, except for a statement
// that the server runs only later, which may grant all that it asks for: so of several ends, one
// leaves few locks.
func leaseCloseInFlight[Tx any](e *env[Tx]) {
	if e.Engine == dbtest.SQLite {
		dbtest.NotUnderRace(e, "what is in flight at once is too slow for one writer")
	}
	const n, ends = 40, 20
	other := e.LockerWith(sqllock.Options{TTL: time.Hour})
	if left := e.closeInFlight(other, "in flight", n, false); left > 0 {
		e.Errorf("%d of %d locks are held by nobody", left, n)
	}
	left := n
	for i := 0; i < ends && left > n/4; i++ {
		left = e.closeInFlight(other, conformance.Numbered("cancelled", i), n, true)
	}
	if left > n/4 {
		e.Errorf("cancelled: %d of %d locks are held by nobody, and no fewer at %d ends", left, n, ends)
	}
}

// closeInFlight closes a Locker while n calls are in progress, or were just cancelled, and returns
// how many locks are held then.
func (e *env[Tx]) closeInFlight(other *sqllock.Locker[Tx], what string, n int, cancelled bool) (left int) {
	e.Helper()
	l := e.LockerWith(sqllock.Options{TTL: time.Hour})
	ctx, cancel := context.WithCancel(e.Ctx)
	defer cancel()
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() {
			_, err := l.Acquire(ctx, conformance.Numbered(what, i))
			if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, sqllock.ErrClosed) {
				e.Error(err)
			}
		})
	}
	time.Sleep(3 * time.Millisecond)
	if cancelled {
		cancel()
	}
	if err := l.Close(e.Ctx); err != nil {
		e.Errorf("Close: %v", err)
	}
	calls.Wait()
	for i := range n {
		lease, err := other.TryAcquire(e.Ctx, conformance.Numbered(what, i))
		if err != nil {
			left++
			continue
		}
		e.MustRelease(lease)
	}
	return left
}

// leaseTurns checks that processes share a key that all of them want all the time: none keeps it
// among its own goroutines for long.
func leaseTurns[Tx any](e *env[Tx]) {
	const changes, most = 10, 1000 // with turns of a second there are thousands
	lockers := e.Lockers(2, sqllock.Options{})
	var mu sync.Mutex
	last, crossed, granted := -1, 0, 0
	over := func(process int) bool {
		mu.Lock()
		defer mu.Unlock()
		if granted++; last != process && last >= 0 {
			crossed++
		}
		last = process
		return crossed >= changes
	}
	ctx, cancel := context.WithCancel(e.Ctx)
	defer cancel()
	var running sync.WaitGroup
	for process, l := range lockers {
		for range 4 {
			running.Go(func() {
				for ctx.Err() == nil {
					lease, err := l.Acquire(ctx, "turns")
					if err != nil {
						if ctx.Err() == nil {
							e.Error(err)
						}
						return
					}
					if over(process) {
						cancel()
					}
					if err := lease.Release(e.Ctx); err != nil {
						e.Error(err)
					}
				}
			})
		}
	}
	running.Wait()
	if crossed < changes || granted > most*changes {
		e.Errorf("%d grants and %d changes between the processes", granted, crossed)
	}
}
