// Package schedule runs work when it is due, together with work that is nearly due.
package schedule

import (
	"context"
	"sync"
	"time"
)

// linger is how long the goroutine stays without items: a lease that is released at once would
// start one each time.
const linger = time.Second

// Schedule holds items, each with the time at which it is due. Its goroutine ends soon after the
// last item.
type Schedule[T comparable] struct {
	ctx   context.Context // its end stops the schedule
	slack time.Duration
	// With more than crowd items, crowded replaces a smaller slack.
	crowd   int
	crowded time.Duration
	run     func(ctx context.Context, due []T)

	mu      sync.Mutex
	at      map[T]time.Time
	ended   chan struct{} // closed when the goroutine ends; nil while none runs
	wakes   time.Time     // when the goroutine wakes; zero while it works
	idle    bool          // it lingers
	changed chan struct{}
}

// New returns a schedule that calls run with the items that are due, and with those that will
// be due within slack. run calls Set again for repeated work. The schedule ends with ctx.
func New[T comparable](ctx context.Context, slack time.Duration, run func(context.Context, []T)) *Schedule[T] {
	return &Schedule[T]{ctx: ctx, slack: slack, run: run, at: map[T]time.Time{}, changed: make(chan struct{}, 1)}
}

// Crowd sets the slack that applies while there are more than n items.
func (s *Schedule[T]) Crowd(n int, slack time.Duration) { s.crowd, s.crowded = n, slack }

// Set schedules t, or reschedules it. It wakes the goroutine only if t is due before all other
// items, so a lease that is released before its renewal costs nothing.
func (s *Schedule[T]) Set(t T, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	s.at[t], s.idle = at, false
	if s.ended == nil {
		s.ended = make(chan struct{})
		go s.loop(s.ended)
	}
	if at.Before(s.wakes) {
		select {
		case s.changed <- struct{}{}:
		default:
		}
	}
}

// Len returns the number of items.
func (s *Schedule[T]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at)
}

// Drop removes t.
func (s *Schedule[T]) Drop(t T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.at, t)
}

// Wait waits until the goroutine has ended. The context must have ended before.
func (s *Schedule[T]) Wait() {
	s.mu.Lock()
	ended := s.ended
	s.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

func (s *Schedule[T]) loop(ended chan struct{}) {
	defer close(ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		due, wait, ok := s.next()
		if !ok {
			return
		}
		if len(due) > 0 {
			s.run(s.ctx, due)
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-s.changed:
		case <-s.ctx.Done():
		}
	}
}

// next removes and returns the due items, or returns how long to wait. ok is false if no items
// are left; then the goroutine ends.
func (s *Schedule[T]) next() (due []T, wait time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if len(s.at) == 0 && !s.idle && s.ctx.Err() == nil {
		s.idle, s.wakes = true, now.Add(linger)
		return nil, linger, true
	}
	if len(s.at) == 0 || s.ctx.Err() != nil {
		s.ended, s.wakes, s.idle = nil, time.Time{}, false
		return nil, 0, false
	}
	s.wakes = time.Time{}
	var first time.Time
	for _, at := range s.at {
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	if wait = first.Sub(now); wait > 0 {
		s.wakes = first
		return nil, wait, true
	}
	slack := s.slack
	if s.crowd > 0 && len(s.at) > s.crowd {
		slack = max(slack, s.crowded)
	}
	for t, at := range s.at {
		if at.Sub(now) <= slack {
			due = append(due, t)
			delete(s.at, t)
		}
	}
	return due, 0, true
}
