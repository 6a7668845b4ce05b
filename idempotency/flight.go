package idempotency

import (
	"bytes"
	"context"
	"time"
)

// flight is the call that runs a key in this process; duplicates wait for it
// without a connection.
type flight struct {
	print []byte
	done  chan struct{}
	// record is the outcome once done is closed; nil when there is none that
	// a duplicate may take over: the call failed, was cancelled, panicked or
	// does not know.
	record *record
}

// join makes the caller the leader of c's key, or gives the flight to follow.
func (s *Store[Tx]) join(c *claim) (f *flight, leads bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.flights[c.hash]; f != nil {
		return f, false
	}
	f = &flight{print: c.print, done: make(chan struct{})}
	s.flights[c.hash] = f
	return f, true
}

func (s *Store[Tx]) land(c *claim, f *flight, r *record) {
	s.mu.Lock()
	delete(s.flights, c.hash)
	s.mu.Unlock()
	f.record = r
	close(f.done)
}

// follow waits for a flight. It returns its record, nil when the caller has
// to try itself, or an error.
func (c *claim) follow(ctx context.Context, f *flight, deadline time.Time) (*record, error) {
	if c.print != nil && f.print != nil && !bytes.Equal(c.print, f.print) {
		return nil, &MismatchError{Stored: f.print, Given: c.print}
	}
	if c.op.NoWait {
		select {
		case <-f.done:
			return f.record, nil
		default:
			return nil, &InProgressError{}
		}
	}
	t := time.NewTimer(time.Until(deadline))
	defer t.Stop()
	select {
	case <-f.done:
		return f.record, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-t.C:
		return nil, &InProgressError{Waited: c.wait}
	}
}

// held is the chain of keys that a context's functions run under.
type held struct {
	store any
	hash  [32]byte
	outer *held
}

type heldKey struct{}

func (s *Store[Tx]) enter(ctx context.Context, c *claim) (context.Context, error) {
	outer, _ := ctx.Value(heldKey{}).(*held)
	for h := outer; h != nil; h = h.outer {
		if h.store == any(s) && h.hash == c.hash {
			return nil, ErrNested
		}
	}
	return context.WithValue(ctx, heldKey{}, &held{s, c.hash, outer}), nil
}
