package fairlocks

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// Suite is the suite of the locks with a queue in the database: fair locks, shared locks,
// semaphores.
func Suite[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Helper()
	for name, test := range map[string]func(*env[Tx]){
		"Input": ticketsInput[Tx], "Keys": ticketsKeys[Tx], "Try": ticketsTry[Tx], "Tokens": ticketsTokens[Tx],
		"Order": ticketsOrder[Tx], "Shares": ticketsShares[Tx], "Dead": ticketsDead[Tx], "Cancelled": ticketsCancelled[Tx],
		"Thousand": ticketsThousand[Tx], "Closed": ticketsClosed[Tx], "Judge": ticketsJudge[Tx],
		"Readers": ticketsReaders[Tx], "Writer": ticketsWriter[Tx], "Nested": ticketsNested[Tx],
		"Line": ticketsLine[Tx], "Lines": ticketsLines[Tx], "ForceRelease": ticketsForceRelease[Tx], "OutliveTheirRow": ticketsOutliveTheirRow[Tx], "Capacity": ticketsCapacity[Tx], "Weights": ticketsWeights[Tx],
		"Failing": ticketsFailing[Tx], "GiveUp": ticketsGiveUp[Tx],
		"Guard": ticketsGuard[Tx], "GuardedStays": ticketsGuardedStays[Tx], "GuardSnapshot": ticketsGuardSnapshot[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, test)
		})
	}
	Contended(t, h)
}

// Contended is the part of the suite with contention.
func Contended[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Helper()
	for name, test := range map[string]func(*env[Tx]){
		"Contended": ticketsContended[Tx], "ContendedShared": ticketsContendedShared[Tx], "ContendedSemaphore": ticketsContendedSemaphore[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, test)
		})
	}
}

func ticketsInput[Tx any](e *env[Tx]) {
	l := e.Lockers(1, sqllock.Options{})[0]
	for _, key := range []string{"", strings.Repeat("k", sqllock.MaxKey+1)} {
		_, err := fairlock.New(l).Acquire(e.Ctx, key)
		_, tried := fairlock.New(l).TryAcquireShared(e.Ctx, key)
		_, sem := fairlock.New(l).Semaphore(key, 1)
		for _, err := range []error{err, tried, sem} {
			if !errors.Is(err, holdfast.ErrInvalid) {
				e.Errorf("key of %d bytes: %v", len(key), err)
			}
		}
	}
	for _, permits := range []int{-1, 0, fairlock.MaxPermits + 1} {
		if _, err := fairlock.New(l).Semaphore("key", permits); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%d permits: %v", permits, err)
		}
	}
	s, err := fairlock.New(l).Semaphore("key", 3)
	e.Check(err)
	for _, n := range []int{-1, 0, 4} {
		if _, err := s.TryAcquire(e.Ctx, n); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%d of 3 permits: %v", n, err)
		}
	}
	for _, opt := range []sqllock.AcquireOptions{{Reentry: sqllock.NewReentry()}, {TTL: time.Millisecond}} {
		if _, err := fairlock.New(l).Acquire(e.Ctx, "key", opt); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("option: %v", err)
		}
	}
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(e.Ctx)
	cancel(cause)
	_, err = fairlock.New(l).Acquire(ctx, "key")
	_, tried := s.TryAcquire(ctx, 1)
	if !errors.Is(err, cause) || !errors.Is(tried, cause) {
		e.Errorf("a context that has ended: %v, %v", err, tried)
	}
	if n := e.Tickets() + e.Int(`SELECT COUNT(*) FROM holdfast_locks`); n != 0 {
		e.Errorf("what was refused has left %d rows", n)
	}
}

// ticketsKeys checks that all keys are different, and that all kinds of locks are separate.
func ticketsKeys[Tx any](e *env[Tx]) {
	l := e.Lockers(1, sqllock.Options{})[0]
	keys := slices.Compact(slices.Sorted(slices.Values(append(conformance.Keys(), strings.Repeat("\xff", sqllock.MaxKey)))))
	var leases []*sqllock.Lease
	for _, key := range keys {
		lease, err := fairlock.New(l).TryAcquire(e.Ctx, key)
		if err != nil {
			e.Fatalf("%.20q: %v", key, err)
		}
		if lease.Key() != key || lease.Term() != fairlock.New(l).Term(key, lease.Token()) {
			e.Errorf("%.20q: the lease is on %.20q", key, lease.Key())
		}
		leases = append(leases, lease)
	}
	s, err := fairlock.New(l).Semaphore(keys[0], 1)
	e.Check(err)
	permit, err := s.TryAcquire(e.Ctx, 1)
	e.Check(err)
	if permit.Term() != s.Term(permit.Token()) || permit.Term() == fairlock.New(l).Term(keys[0], permit.Token()) {
		e.Error("the kinds' terms are mixed up")
	}
	plain := e.TryAcquire(l, keys[0])
	for _, lease := range append(leases, permit, plain) {
		e.Check(lease.Release(e.Ctx))
	}
	if n := e.Tickets(); n != 0 {
		e.Errorf("%d rows are left", n)
	}
}

// ticketsTry checks that a failed try reports the holder, and does not overtake waiting calls.
func ticketsTry[Tx any](e *env[Tx]) {
	l := fairlock.New(e.Lockers(1, sqllock.Options{Holder: "first"})[0])
	other := fairlock.New(e.Lockers(1, sqllock.Options{Holder: "second"})[0])
	held := func(what string, err error, by *sqllock.Lease) {
		e.Helper()
		h := (*sqllock.HeldError)(nil)
		if !errors.As(err, &h) || !errors.Is(err, sqllock.ErrHeld) || h.Key != "key" || h.Holder != "first" || h.Token != by.Token() || h.Remaining <= 0 || h.Remaining > dbtest.Hang {
			e.Errorf("%s: %v", what, err)
		}
	}
	lease, err := l.TryAcquireShared(e.Ctx, "key")
	e.Check(err)
	_, err = other.TryAcquire(e.Ctx, "key")
	held("alone beside a shared one", err, lease)
	beside, err := other.TryAcquireShared(e.Ctx, "key")
	e.Check(err)
	e.Check(beside.Release(e.Ctx))
	got := make(chan *sqllock.Lease)
	go func() {
		writer, err := other.Acquire(e.Ctx, "key")
		if err != nil {
			e.Error(err)
		}
		got <- writer
	}()
	e.Eventually("the writer stands in line", func() bool { return e.Tickets() == 2 })
	_, err = l.TryAcquireShared(e.Ctx, "key")
	held("shared, behind a writer that waits", err, lease)
	if n := e.Tickets(); n != 2 {
		e.Errorf("those who tried have left %d rows", n-2)
	}
	e.Check(lease.Release(e.Ctx))
	writer := <-got
	if writer == nil {
		return
	}
	if err := lease.Release(e.Ctx); err != nil {
		e.Errorf("released again: %v", err)
	}
	e.Check(writer.Release(e.Ctx))
	// A dead holder does not block.
	var dead *sqllock.Lease
	e.Eventually("a lease that was not over before its answer came", func() bool {
		dead, err = l.TryAcquire(e.Ctx, "key", sqllock.AcquireOptions{TTL: conformance.ShortTTL, NoRenewal: true})
		return err == nil
	})
	<-dead.Context().Done()
	if cause := context.Cause(dead.Context()); !errors.Is(cause, sqllock.ErrLost) {
		e.Errorf("the lease ended with %v", cause)
	}
	var next *sqllock.Lease
	e.Eventually("the dead one is passed over", func() bool {
		next, err = other.TryAcquire(e.Ctx, "key")
		return err == nil
	})
	if next.Token() <= dead.Token() {
		e.Errorf("token %d after %d", next.Token(), dead.Token())
	}
	if err := dead.Release(e.Ctx); !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("a late release: %v", err)
	}
	if err := next.Context().Err(); err != nil {
		e.Errorf("a late release ended the next lease: %v", err)
	}
	e.Check(next.Release(e.Ctx))
}

// ticketsTokens checks that tokens increase across every change to the key's row.
func ticketsTokens[Tx any](e *env[Tx]) {
	l := e.Lockers(1, sqllock.Options{})[0]
	s, err := fairlock.New(l).Semaphore("key", 2)
	e.Check(err)
	var last int64
	next := func(what string) {
		e.Helper()
		lease, err := s.TryAcquire(e.Ctx, 1)
		e.Check(err)
		if lease.Token() <= last {
			e.Errorf("%s: token %d after %d", what, lease.Token(), last)
		}
		last = lease.Token()
		e.Check(lease.Release(e.Ctx))
	}
	const hour = 3_600_000_000 // µs
	next("first")
	next("again")
	last += hour
	e.Must(`UPDATE holdfast_locks SET token = token + $1`, hour)
	next("the clock was set back")
	// As the reaper does.
	last += hour
	floor := last
	e.Must(`UPDATE holdfast_floor SET token = $1`, last)
	e.Must(`DELETE FROM holdfast_locks`)
	next("the row was reaped")
	var wg sync.WaitGroup
	for range 8 { // none of them finds a row
		wg.Go(func() {
			lease, err := fairlock.New(l).AcquireShared(e.Ctx, "fresh")
			if err != nil {
				e.Error(err)
				return
			}
			if lease.Token() <= floor {
				e.Errorf("token %d, the floor is %d", lease.Token(), floor)
			}
			e.leaves(lease)
		})
	}
	wg.Wait()
}
