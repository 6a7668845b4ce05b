package once

import (
	"context"
	"sync"
	"time"
)

// Flights joins the duplicates of one process before they reach the database, so that they need no
// connection each.
type Flights[V any] struct {
	mu      sync.Mutex
	running map[Hash]*Flight[V]
}

// Flight is the call that runs a key. Duplicates follow it.
type Flight[V any] struct {
	done chan struct{}
	// value is the outcome once done is closed. It is nil if duplicates cannot take it over: the
	// call failed, was cancelled, panicked, or has an unknown outcome.
	value *V
}

// Join makes the caller the leader of a key, or returns the flight to follow. It does not compare
// the two requests: either may be the wrong one, and only a record can decide that.
func (g *Flights[V]) Join(key Hash) (f *Flight[V], leads bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.running[key]; f != nil {
		return f, false
	}
	if g.running == nil {
		g.running = map[Hash]*Flight[V]{}
	}
	f = &Flight[V]{done: make(chan struct{})}
	g.running[key] = f
	return f, true
}

// Finish ends the flight of a key and shares value with its followers.
func (g *Flights[V]) Finish(key Hash, f *Flight[V], value *V) {
	g.mu.Lock()
	delete(g.running, key)
	g.mu.Unlock()
	f.value = value
	close(f.done)
}

// WaitPolicy says how a follower waits.
type WaitPolicy struct {
	NoWait   bool
	Wait     time.Duration
	Deadline time.Time
}

// Follow waits for a flight. It returns the flight's value, nil if the caller must try itself, or
// an error.
func (f *Flight[V]) Follow(ctx context.Context, p WaitPolicy) (*V, error) {
	if p.NoWait {
		select {
		case <-f.done:
			return f.value, nil
		default:
			return nil, &InProgressError{}
		}
	}
	t := time.NewTimer(time.Until(p.Deadline))
	defer t.Stop()
	select {
	case <-f.done:
		return f.value, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-t.C:
		return nil, &InProgressError{Waited: p.Wait}
	}
}

// Peek waits for a flight until ctx ends, and returns its value.
func (f *Flight[V]) Peek(ctx context.Context) (*V, error) {
	select {
	case <-f.done:
		return f.value, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
