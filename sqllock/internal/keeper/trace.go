package keeper

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/trace"
)

// Mutex collects events while it is locked and reports them after the unlock, so that no tracer
// runs under the lock.
type Mutex struct {
	sync.Mutex

	trace *trace.Tracer
	notes []note
}

type note struct {
	ctx  context.Context
	fact trace.Event
}

// Note records an event, which Unlock reports.
func (m *Mutex) Note(ctx context.Context, f trace.Event) { m.note(ctx, f) }

// failed reports that a connection of the background failed, by which other processes wake this one, or see
// that it lives. It is tried again.
func (k *Keeper) failed(err error) {
	if k.Ctx.Err() == nil {
		k.Mu.trace.Emit(k.Ctx, trace.Event{Name: trace.WaitFailed, Err: err})
	}
}

func (m *Mutex) note(ctx context.Context, f trace.Event) {
	if m.trace.On() {
		m.notes = append(m.notes, note{ctx, f})
	}
}

// Unlock unlocks, and reports the events.
func (m *Mutex) Unlock() {
	notes := m.notes
	m.notes = nil
	m.Mutex.Unlock()
	for _, n := range notes {
		m.trace.Emit(n.ctx, n.fact)
	}
}

func (k *Keeper) noteGranted(l *Lease) {
	k.Mu.note(l.ctx, trace.Event{Name: trace.LeaseGranted, Lock: l.lock})
}

// ended records the end of a granted lease. Mu is held.
func (k *Keeper) ended(l *Lease, cause error) {
	if !l.granted {
		return
	}
	f := trace.Event{Name: trace.LeaseEnded, Lock: l.lock, Outcome: trace.Released, Duration: time.Since(l.since)}
	switch {
	case errors.Is(cause, ErrLost):
		f.Outcome = trace.Lost
	case errors.Is(cause, ErrClosed):
		f.Outcome = trace.Closed
	}
	k.Mu.note(l.ctx, f)
}

// wasLost records how a lease was lost. Mu is held.
func (k *Keeper) wasLost(l *Lease, cause string) {
	if l.granted {
		k.Mu.note(l.ctx, trace.Event{Name: trace.LeaseLost, Lock: l.lock, Cause: cause, Err: l.renewError})
	}
}

// StartCall starts the span of a call on a lock.
func (k *Keeper) StartCall(ctx context.Context, name, lock string) (context.Context, trace.Span) {
	return k.Mu.trace.Start(ctx, trace.Call{Name: name, Lock: lock})
}

// StartSpan starts the span of a call that is named after its lock and a verb.
func (k *Keeper) StartSpan(ctx context.Context, lock, verb string) (context.Context, trace.Span) {
	if !k.Mu.trace.On() {
		return ctx, trace.Span{}
	}
	return k.Mu.trace.Start(ctx, trace.Call{Name: lock + "." + verb, Lock: lock, Waits: verb == "acquire"})
}

// Outcome returns the trace name of an error of the lock packages.
func Outcome(err error) string {
	for _, o := range []struct {
		is   error
		name string
	}{
		{ErrHeld, trace.Held},
		{ErrLost, trace.Lost},
		{ErrClosed, trace.Closed},
		{ErrNested, trace.Nested},
		{ErrCapacity, trace.Capacity},
		{ErrOtherStore, trace.Invalid},
	} {
		if errors.Is(err, o.is) {
			return o.name
		}
	}
	return ""
}

// Acquired is Outcome for calls that acquire a lock.
func Acquired(err error) string {
	if err == nil {
		return trace.Acquired
	}
	return Outcome(err)
}
