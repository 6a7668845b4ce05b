package sqllock

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/internal/trace"
)

// Acquire waits for the lock on key until ctx ends. Goroutines of one Locker
// get it in the order in which they asked; between processes it is whoever
// asks first when it is free. ctx bounds the wait, and does not end the lease.
//
// Errors: ctx's cause, [ErrClosed], [holdfast.ErrInvalid] (the key is empty or
// longer than [MaxKey], the TTL out of bounds), [holdfast.ErrRetry], the
// driver's. After an error the lock is not held: a grant whose answer was lost
// is taken back in the background.
func (l *Locker[Tx]) Acquire(ctx context.Context, key string, opts ...Option) (lease *Lease, err error) {
	inner, op := l.leases.tellOf(ctx, trace.LockLease, "acquire")
	defer func() { op.End(err, acquired) }()
	name, s, err := l.leases.check(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	return l.leases.wait(inner, l.leases.join(key, name, s))
}

// TryAcquire asks for the lock on key once, and does not wait for anybody.
//
// Errors: [ErrHeld] as a *[HeldError] with the holder, and those of Acquire.
func (l *Locker[Tx]) TryAcquire(ctx context.Context, key string, opts ...Option) (lease *Lease, err error) {
	inner, op := l.leases.tell(ctx, "lease.try_acquire", trace.LockLease)
	defer func() { op.End(err, acquired) }()
	name, s, err := l.leases.check(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	return l.leases.try(inner, key, name, s)
}

// Do acquires the lock on key, runs fn and releases the lock, also when fn
// panics. fn's context ends with ctx and with the lease; for a transaction that
// Guard protects use the outer ctx, for it may outlive the lease.
//
// Errors: fn's; those of Acquire, and then fn did not run; [ErrLost] when fn
// returned nil and the lease had ended before: what fn did under Guard stands,
// what it did without may not have been alone. An error of the release itself
// is not returned, for the lease ends with its TTL.
func (l *Locker[Tx]) Do(ctx context.Context, key string, fn func(ctx context.Context, lease *Lease) error, opts ...Option) error {
	return l.leases.during(ctx, "lease.do", trace.LockLease, fn, func(ctx context.Context) (*Lease, error) { return l.Acquire(ctx, key, opts...) })
}

// during acquires a lease and runs fn while it is held.
func (m *manager) during(ctx context.Context, name, lock string, fn func(ctx context.Context, lease *Lease) error, acquire func(ctx context.Context) (*Lease, error)) (err error) {
	ctx, op := m.tell(ctx, name, lock)
	defer func() { op.End(err, outcome) }()
	lease, err := acquire(ctx)
	if err != nil {
		return err
	}
	err = trace.ErrAborted // until it returns
	defer func() { _ = lease.Release(ctx) }()
	inner, cancel := context.WithCancelCause(ctx)
	if lease.claim != nil {
		inner = context.WithValue(inner, holdingKey{}, lease)
	}
	defer cancel(nil)
	defer context.AfterFunc(lease.Context(), func() { cancel(context.Cause(lease.Context())) })()
	if err := fn(inner, lease); err != nil {
		return err
	}
	if cause := context.Cause(lease.Context()); cause != nil && !errors.Is(cause, ErrReleased) {
		return cause
	}
	return nil
}

func (m *manager) check(ctx context.Context, key string, opts []Option) (name []byte, s settings, err error) {
	if name, err = nameOf(kindLease, key); err != nil {
		return nil, s, err
	}
	if s, err = m.options.settings(opts); err != nil {
		return nil, s, err
	}
	if s.values == nil {
		s.values = ctx
	}
	return name, s, context.Cause(ctx)
}

// tries is how often a row that seems free, and is locked, is asked for: who
// has it locked is mostly a statement that is about to win.
const tries = 3

func (m *manager) try(ctx context.Context, key string, name []byte, s settings) (*Lease, error) {
	m.mu.Lock()
	again := m.queues[key].again(s.by)
	m.mu.Unlock()
	if again != nil {
		return again, nil
	}
	for n := 1; ; n++ {
		lease, v, err := m.attempt(ctx, key, name, s)
		if lease != nil || err != nil {
			return lease, err
		}
		if v.left > 0 || n == tries {
			return nil, &HeldError{Key: key, Holder: v.holder, Token: v.token, Remaining: v.left}
		}
		time.Sleep(minPoll)
	}
}

// attempt asks the database once for a lease.
func (m *manager) attempt(ctx context.Context, key string, name []byte, s settings) (*Lease, verdict, error) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil, verdict{}, ErrClosed
	}
	m.flights.Add(1)
	m.mu.Unlock()
	defer m.flights.Add(-1)
	a := attempt{name: name, owner: newOwner(), ttl: s.ttl}
	sent := time.Now() // before the request leaves
	v, err := m.store.acquire(ctx, a)
	a.doubt = v.doubt || err != nil && !m.store.dialect.RolledBack(err)
	if !v.won && a.doubt {
		m.forsake(a) // it may have been granted, or may yet be
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil || !v.won {
		return nil, v, err
	}
	lease, err := m.begin(key, a, s, v.token, sent)
	if lease != nil {
		m.mu.Lock()
		m.queue(key).since = sent
		m.mu.Unlock()
	}
	return lease, verdict{}, err
}

// askAtOnce is how many calls that wait for different keys ask the database at
// the same time: each needs a connection, and the pool may have no bound.
const askAtOnce = 64

// ask is the attempt of the first in line.
func (m *manager) ask(ctx context.Context, w *waiter) (*Lease, time.Duration, error) {
	select {
	case m.asking <- struct{}{}:
		defer func() { <-m.asking }()
	case <-ctx.Done():
		return nil, 0, context.Cause(ctx)
	}
	lease, v, err := m.attempt(ctx, w.q.key, w.name, w.settings)
	return lease, v.left, err
}

// release ends a lease and gives the lock to the next in line, or to anybody.
func (m *manager) release(ctx context.Context, l *Lease) error {
	if l.claim != nil {
		return m.releaseClaim(ctx, l)
	}
	m.mu.Lock()
	var next *waiter
	if m.end(l, ErrReleased) && !m.closed {
		if next = m.queues[l.term.key].next(); next != nil {
			m.flights.Add(1)
		}
	}
	m.mu.Unlock()
	doubt := false
	if next != nil {
		var passed bool
		if passed, doubt = m.pass(ctx, l, next); passed {
			if l.doubt {
				m.forsake(l.attempt)
			}
			return nil
		}
	}
	f, err := m.store.free(ctx, freeing{l.name, l.owner, l.term.token})
	if err != nil || l.doubt {
		m.forsake(l.attempt)
	}
	if f.tell {
		m.bell.ring(l.name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wake(l.term.key)
	// Whatever became of a release that nobody answered, what had lapsed was lost.
	lapsed := errors.Is(context.Cause(l.ctx), ErrLost)
	if err == nil && !f.was && (lapsed || !doubt && !f.doubt) {
		if !lapsed {
			m.wasLost(l, trace.CauseRelease)
		}
		return l.lost("it was not the row's any more at its release")
	}
	return err
}

// pass hands the lock over to the first in line, in one statement. Where it did
// not, doubt says that it may have, and the answer was lost.
func (m *manager) pass(ctx context.Context, l *Lease, w *waiter) (passed, doubt bool) {
	defer m.flights.Add(-1)
	a := attempt{name: w.name, owner: newOwner(), ttl: w.ttl}
	sent := time.Now()
	v, doubt, err := m.store.pass(ctx, l.owner, a)
	var lease *Lease
	switch {
	case err == nil && v.won:
		lease, err = m.begin(w.q.key, a, w.settings, v.token, sent)
	case doubt:
		m.forsake(a)
	}
	m.mu.Lock()
	w.passing = false
	gone := w.gone
	if !gone {
		w.lease = lease
		signal(w.event)
	}
	if lease == nil {
		m.wake(w.q.key)
	}
	m.mu.Unlock()
	if gone && lease != nil {
		_ = lease.Release(ctx) // to the one behind
	}
	return err == nil && v.won, doubt
}
