package sqllock

import (
	"context"
	"sync"
	"time"
)

// agenda has things done when they are due, together with those that are
// nearly due. Its goroutine runs while there is something on it.
type agenda[T comparable] struct {
	ctx   context.Context // ends all of it
	slack time.Duration
	// crowded is the slack where more is on it than one statement takes.
	crowded time.Duration
	// do puts back what is to be done again.
	do func(ctx context.Context, due []T)

	mu      sync.Mutex
	at      map[T]time.Time
	ended   chan struct{} // of the goroutine that runs, or nil
	wakes   time.Time     // when it looks next; zero: it is at work, and will look
	changed chan struct{}
}

func newAgenda[T comparable](ctx context.Context, slack time.Duration, do func(context.Context, []T)) *agenda[T] {
	return &agenda[T]{ctx: ctx, slack: slack, do: do, at: map[T]time.Time{}, changed: make(chan struct{}, 1)}
}

// set puts t on the agenda, or moves it. The goroutine is woken for what comes
// before all else only: a lease that lives shorter than that costs it nothing.
func (a *agenda[T]) set(t T, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx.Err() != nil {
		return
	}
	a.at[t] = at
	if a.ended == nil {
		a.ended = make(chan struct{})
		go a.run(a.ended)
	}
	if at.Before(a.wakes) {
		signal(a.changed)
	}
}

func (a *agenda[T]) len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.at)
}

// drop takes t off the agenda. The goroutine finds out when it looks next, and
// ends then if there is nothing else.
func (a *agenda[T]) drop(t T) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.at, t)
}

// wait waits for the goroutine's end; ctx has ended.
func (a *agenda[T]) wait() {
	a.mu.Lock()
	ended := a.ended
	a.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

func (a *agenda[T]) run(ended chan struct{}) {
	defer close(ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		due, wait, ok := a.next()
		if !ok {
			return
		}
		if len(due) > 0 {
			a.do(a.ctx, due)
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-a.changed:
		case <-a.ctx.Done():
		}
	}
}

// next takes off what is due, or says how long nothing is. It is not ok when
// there is nothing any more, and the goroutine ends.
func (a *agenda[T]) next() (due []T, wait time.Duration, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.at) == 0 || a.ctx.Err() != nil {
		a.ended, a.wakes = nil, time.Time{}
		return nil, 0, false
	}
	a.wakes = time.Time{}
	now := time.Now()
	var first time.Time
	for _, at := range a.at {
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	if wait = first.Sub(now); wait > 0 {
		a.wakes = first
		return nil, wait, true
	}
	slack := a.slack
	if len(a.at) > pollBatch {
		slack = max(slack, a.crowded)
	}
	for t, at := range a.at {
		if at.Sub(now) <= slack {
			due = append(due, t)
			delete(a.at, t)
		}
	}
	return due, 0, true
}

// signal leaves word in a channel of one place.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
