package idempotency

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"
)

type hash = [sha256.Size]byte

// flights brings together the duplicates of one process, before they reach the
// database and without a connection each.
type flights[V any] struct {
	mu      sync.Mutex
	running map[hash]*flight[V]
}

// flight is the call that runs a key; the others follow it.
type flight[V any] struct {
	prints *prints // nil: not compared
	done   chan struct{}
	// value is the outcome once done is closed; nil when there is none that
	// a duplicate may take over: the call failed, was cancelled, panicked or
	// does not know.
	value *V
}

// join makes the caller the leader of a key, or gives the flight to follow.
func (g *flights[V]) join(key hash, p *prints) (f *flight[V], leads bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.running[key]; f != nil {
		return f, false
	}
	if g.running == nil {
		g.running = map[hash]*flight[V]{}
	}
	f = &flight[V]{prints: p, done: make(chan struct{})}
	g.running[key] = f
	return f, true
}

func (g *flights[V]) land(key hash, f *flight[V], value *V) {
	g.mu.Lock()
	delete(g.running, key)
	g.mu.Unlock()
	f.value = value
	close(f.done)
}

// patience is how a follower waits.
type patience struct {
	prints   *prints
	noWait   bool
	wait     time.Duration
	deadline time.Time
}

// follow waits for a flight. It returns its value, nil when the caller has to
// try itself, or an error.
func (f *flight[V]) follow(ctx context.Context, p patience) (*V, error) {
	if p.prints != nil && f.prints != nil {
		if err := p.prints.compare(f.prints.version, f.prints.own()); err != nil {
			return nil, err
		}
	}
	if p.noWait {
		select {
		case <-f.done:
			return f.value, nil
		default:
			return nil, &InProgressError{}
		}
	}
	t := time.NewTimer(time.Until(p.deadline))
	defer t.Stop()
	select {
	case <-f.done:
		return f.value, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-t.C:
		return nil, &InProgressError{Waited: p.wait}
	}
}

// held is the chain of keys that a context's functions run under.
type held struct {
	owner any
	key   hash
	outer *held
}

type heldKey struct{}

// enter refuses a key that the context runs under already, which would wait
// for itself.
func enter(ctx context.Context, owner any, key hash) (context.Context, error) {
	outer, _ := ctx.Value(heldKey{}).(*held)
	for h := outer; h != nil; h = h.outer {
		if h.owner == owner && h.key == key {
			return nil, ErrNested
		}
	}
	return context.WithValue(ctx, heldKey{}, &held{owner, key, outer}), nil
}
