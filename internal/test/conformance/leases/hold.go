package leases

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/sqllock"
)

type leaseValue struct{}

// leaseLife checks the properties of a lease, the errors that other callers get, and its end.
func leaseLife[Tx any](e *env[Tx]) {
	const key, ttl = "life", time.Hour
	o := sqllock.Options{TTL: ttl, Holder: "two of one name"}
	l, other := e.LockerWith(o), e.LockerWith(o)
	asked := time.Now()
	ctx, cancel := context.WithCancel(context.WithValue(e.Ctx, leaseValue{}, "mine"))
	lease, err := l.Acquire(ctx, key)
	if err != nil {
		e.Fatal(err)
	}
	cancel() // bounds the wait, not the lease
	term := lease.Term()
	if lease.Key() != key || lease.Token() <= 0 || term.Key() != key || term.Token() != lease.Token() || term != lease.Term() {
		e.Errorf("the lease says %q, %d, %v", lease.Key(), lease.Token(), term)
	}
	if lease.Context().Value(leaseValue{}) != "mine" || lease.Context().Err() != nil {
		e.Errorf("the lease's context: %v, %v", lease.Context().Value(leaseValue{}), lease.Context().Err())
	}
	// Two processes with one holder name are two holders, and so are two calls of one process.
	for _, who := range []*sqllock.Locker[Tx]{other, l} {
		held := e.wantHeld(who, key)
		least := ttl - time.Since(asked) - time.Second
		if held.Key != key || held.Holder != o.Holder || held.Token != lease.Token() || held.Remaining > ttl || held.Remaining < least {
			e.Errorf("told of the holder: %+v, at least %v should remain", held, least)
		}
	}
	e.MustRelease(lease)
	e.MustRelease(lease) // a second release returns the same
	e.WantEnded(lease, sqllock.ErrReleased)
	next := e.wantFree(other, key)
	if next.Token() <= lease.Token() {
		e.Errorf("token %d after %d", next.Token(), lease.Token())
	}
	ended, cancel := context.WithCancel(e.Ctx)
	cancel()
	if err := next.Release(ended); err != nil {
		e.Errorf("a release with a context that has ended: %v", err)
	}
	e.MustRelease(e.wantFree(l, key))

	if _, err := l.Acquire(ended, key); !errors.Is(err, context.Canceled) {
		e.Errorf("an acquire with a context that has ended: %v", err)
	}
	if _, err := l.TryAcquire(ended, key); !errors.Is(err, context.Canceled) {
		e.Errorf("a try with a context that has ended: %v", err)
	}
	e.MustRelease(e.wantFree(other, key))
}

// leaseLateRelease releases a term that is over after another call acquired the lock. The later
// term remains (etcd #22082).
func leaseLateRelease[Tx any](e *env[Tx]) {
	const key = "late release"
	l, other := e.LockerWith(sqllock.Options{}), e.LockerWith(sqllock.Options{TTL: time.Hour})
	late := e.MustAcquire(l, key, sqllock.AcquireOptions{TTL: conformance.ShortTTL, NoRenewal: true})
	e.WantEnded(late, sqllock.ErrLost)
	e.expired(key)
	next := e.wantFree(other, key)
	var lost *sqllock.LostError
	for range 2 {
		if err := late.Release(e.Ctx); !errors.As(err, &lost) || !errors.Is(err, sqllock.ErrLost) {
			e.Errorf("a late release: %v, want ErrLost", err)
		}
	}
	if held := e.wantHeld(l, key); held.Token != next.Token() || held.Remaining < 50*time.Minute {
		e.Errorf("after a late release the lock is %+v", held)
	}
	e.guarded(other, 0, next.Term(), func(Tx) {})
	e.MustRelease(next)
}

// leaseRenewal checks that leases are renewed even when the context of their acquire has ended,
// that leases with NoRenewal are not renewed, and that each lease ends one margin before its row
// expires.
func leaseRenewal[Tx any](e *env[Tx]) {
	const ttl = 8 * time.Second
	l := e.LockerWith(sqllock.Options{TTL: ttl})
	ctx, cancel := context.WithCancel(e.Ctx)
	renewed, err := l.Acquire(ctx, "renewed")
	if err != nil {
		e.Fatal(err)
	}
	cancel()
	start := time.Now()
	once := e.MustAcquire(l, "once", sqllock.AcquireOptions{NoRenewal: true})
	exact := e.MustAcquire(l, "exact", sqllock.AcquireOptions{TTL: 1234567 * time.Microsecond, NoRenewal: true})
	if got := e.rowInt("exact", `expires_at - granted_at`); got != 1234567 {
		e.Errorf("a TTL of 1,234,567 µs is %d in the table", got)
	}
	e.WantEnded(exact, sqllock.ErrLost)
	// A margin of half the TTL leaves time to read the row.
	wide := e.LockerWith(sqllock.Options{TTL: ttl, Margin: ttl / 2})
	early := e.MustAcquire(wide, "early", sqllock.AcquireOptions{NoRenewal: true})
	e.WantEnded(early, sqllock.ErrLost)
	if left := e.rowInt("early", `expires_at - {now}`); left <= 0 {
		e.Errorf("the lease's context ended %d µs after its row expired", -left)
	}
	e.WantEnded(once, sqllock.ErrLost)
	if took := time.Since(start); took < ttl*9/10-time.Second {
		e.Errorf("a lease of %v ended after %v", ttl, took)
	}
	time.Sleep(time.Until(start.Add(ttl + ttl/4)))
	if err := context.Cause(renewed.Context()); err != nil {
		e.Errorf("the renewed lease ended: %v", err)
	}
	if held := e.wantHeld(wide, "renewed"); held.Token != renewed.Token() {
		e.Errorf("after its renewals the lock is %+v", held)
	}
	e.MustRelease(renewed)
	e.expired("once")
	e.MustRelease(e.wantFree(wide, "once"))
}

// leaseTwinKeys checks that keys which engines fold, pad or truncate are different locks.
func leaseTwinKeys[Tx any](e *env[Tx]) {
	l, other := e.LockerWith(sqllock.Options{}), e.LockerWith(sqllock.Options{})
	tokens := map[string]int64{}
	for _, key := range conformance.Keys() {
		tokens[key] = e.wantFree(l, key).Token()
	}
	for key, token := range tokens {
		if held := e.wantHeld(other, key); held.Token != token || held.Key != key {
			e.Errorf("%q: held %+v, with token %d", key, held, token)
		}
	}
}

// leaseDo checks the whole pattern in one call.
func leaseDo[Tx any](e *env[Tx]) {
	const key = "do"
	l, other := e.LockerWith(sqllock.Options{}), e.LockerWith(sqllock.Options{})
	boom := errors.New("boom")
	runs := 0
	for _, want := range []error{nil, boom} {
		err := l.Do(e.Ctx, key, func(_ context.Context, lease *sqllock.Lease) error {
			runs++
			e.wantHeld(other, key)
			if err := lease.Context().Err(); err != nil || lease.Key() != key {
				e.Errorf("in the function: %v, %q", err, lease.Key())
			}
			return want
		})
		if !errors.Is(err, want) {
			e.Errorf("got %v, want %v", err, want)
		}
		e.MustRelease(e.wantFree(other, key))
	}
	func() {
		defer func() {
			if recover() == nil {
				e.Error("the panic was lost")
			}
		}()
		_ = l.Do(e.Ctx, key, func(context.Context, *sqllock.Lease) error { panic("boom") })
	}()
	e.MustRelease(e.wantFree(other, key))

	// The lease's context ends with the lease and with the caller's context. Do reports no
	// success for a lease that has ended.
	err := l.Do(e.Ctx, key, func(_ context.Context, lease *sqllock.Lease) error {
		<-lease.Context().Done()
		if cause := context.Cause(lease.Context()); !errors.Is(cause, sqllock.ErrLost) {
			e.Errorf("the function's context ended with %v", cause)
		}
		return nil
	}, sqllock.AcquireOptions{TTL: conformance.ShortTTL, NoRenewal: true})
	if !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("got %v, want ErrLost", err)
	}
	ctx, cancel := context.WithCancelCause(e.Ctx)
	err = l.Do(ctx, key, func(_ context.Context, lease *sqllock.Lease) error {
		cancel(boom)
		<-lease.Context().Done()
		return context.Cause(lease.Context())
	})
	if !errors.Is(err, boom) {
		e.Errorf("got %v", err)
	}
	held := e.MustAcquire(other, key)
	err = l.Do(ctx, key, func(context.Context, *sqllock.Lease) error {
		runs++
		return nil
	})
	if !errors.Is(err, boom) || runs != 2 {
		e.Errorf("the function ran %d times without the lock, %v", runs-2, err)
	}
	e.MustRelease(held)
}
