package sqllock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/trace"
)

// mutex tells what was noted while it was locked once it is unlocked: nobody's
// code runs under it.
type mutex struct {
	sync.Mutex

	trace *trace.Tracer
	notes []note
}

type note struct {
	ctx  context.Context
	fact trace.Fact
}

// note notes a fact; m is locked.
func (m *mutex) note(ctx context.Context, f trace.Fact) {
	if m.trace.On() {
		m.notes = append(m.notes, note{ctx, f})
	}
}

// Unlock unlocks, and tells.
func (m *mutex) Unlock() {
	notes := m.notes
	m.notes = nil
	m.Mutex.Unlock()
	for _, n := range notes {
		m.trace.Tell(n.ctx, n.fact)
	}
}

// granted notes that a call has its lease; m.mu is held.
func (m *manager) granted(l *Lease, sent time.Time) {
	l.since = sent
	m.mu.note(l.ctx, trace.Fact{Name: trace.LeaseGranted, Lock: l.lock()})
}

// ended notes that a lease which was granted has ended; m.mu is held.
func (m *manager) ended(l *Lease, cause error) {
	if l.claim != nil && !l.claim.granted {
		return // a place in a line
	}
	f := trace.Fact{Name: trace.LeaseEnded, Lock: l.lock(), Outcome: trace.Released, Duration: time.Since(l.since)}
	switch {
	case errors.Is(cause, ErrLost):
		f.Outcome = trace.Lost
	case errors.Is(cause, ErrClosed):
		f.Outcome = trace.Closed
	}
	m.mu.note(l.ctx, f)
}

// wasLost notes how a lease was lost; m.mu is held.
func (m *manager) wasLost(l *Lease, cause string) {
	if l.claim == nil || l.claim.granted {
		m.mu.note(l.ctx, trace.Fact{Name: trace.LeaseLost, Lock: l.lock(), Cause: cause, Err: l.renewError})
	}
}

// lock is the kind of the lease's lock.
func (l *Lease) lock() string {
	if l.claim == nil {
		return trace.LockLease
	}
	return l.claim.lock()
}

func (a ask) lock() string {
	switch {
	case a.kind == kindSemaphore:
		return trace.LockSemaphore
	case a.units == MaxPermits:
		return trace.LockFair
	}
	return trace.LockShared
}

// tell starts a call on a lock.
func (m *manager) tell(ctx context.Context, name, lock string) (context.Context, trace.Span) {
	return m.mu.trace.Start(ctx, trace.Call{Name: name, Lock: lock})
}

// tellOf is tell where the call's name depends on the lock.
func (m *manager) tellOf(ctx context.Context, lock, verb string) (context.Context, trace.Span) {
	if !m.mu.trace.On() {
		return ctx, trace.Span{}
	}
	return m.mu.trace.Start(ctx, trace.Call{Name: lock + "." + verb, Lock: lock, Waits: verb == "acquire"})
}

// withValues has the lease's context have the values of ctx.
func withValues(ctx context.Context, opts []Option) []Option {
	return append(slices.Clip(opts), func(s *settings) { s.values = ctx })
}

// outcome names this package's errors.
func outcome(err error) string {
	for _, o := range []struct {
		is   error
		name string
	}{
		{ErrHeld, trace.Held},
		{ErrLost, trace.Lost},
		{ErrClosed, trace.Closed},
		{ErrNested, trace.Nested},
		{ErrCapacity, trace.Capacity},
		{ErrTimeout, trace.TimedOut},
		{ErrNotNow, trace.NotNow},
		{ErrNotFound, trace.NotFound},
		{ErrOtherStore, trace.Invalid},
	} {
		if errors.Is(err, o.is) {
			return o.name
		}
	}
	return ""
}

// acquired is outcome of a call that gets a lock.
func acquired(err error) string {
	if err == nil {
		return trace.Acquired
	}
	return outcome(err)
}
