// Package batcher coalesces concurrent requests into one statement.
package batcher

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Max is the maximum number of requests in one statement.
const Max = 64

// Batcher coalesces concurrent requests. The first few run alone; once enough wait,
// one statement carries up to Max. A request left unanswered runs alone.
type Batcher[Q, A any] struct {
	// From is how many requests run alone at the same time before others queue.
	From int
	// Least is the size of the smallest batch. Fewer requests are faster alone.
	Least int
	// Life bounds how long a statement makes other requests wait. A statement that waits for a
	// row, or whose connection is dead, delays others no longer than that.
	Life time.Duration
	// Run sends a batch and calls answer for each request that it can answer.
	Run func(ctx context.Context, all []Q, answer func(i int, a A))

	mu              sync.Mutex
	alone, together int  // running statements
	many            bool // the last statement was a batch: a request that runs alone makes others wait
	queue           []*request[Q, A]
	sent            sync.WaitGroup
}

type request[Q, A any] struct {
	q        Q
	done     chan struct{}
	answered bool
	answer   A
	leave    func() // set for a request that must run alone
}

// Ask answers q, by running alone or in a batch. If Ask returns ctx's error, q may have been
// sent.
func (b *Batcher[Q, A]) Ask(ctx context.Context, q Q, alone func() (A, error)) (none A, err error) {
	b.mu.Lock()
	if b.room() && len(b.queue) == 0 {
		leave := b.enter(&b.alone)
		b.mu.Unlock()
		defer leave()
		return alone()
	}
	c := &request[Q, A]{q: q, done: make(chan struct{})}
	b.queue = append(b.queue, c)
	b.mu.Unlock()
	select {
	case <-c.done:
	case <-ctx.Done():
		b.mu.Lock()
		b.queue = slices.DeleteFunc(b.queue, func(other *request[Q, A]) bool { return other == c })
		leave := c.leave
		b.mu.Unlock()
		if leave != nil {
			leave()
		}
		return none, context.Cause(ctx)
	}
	if c.answered {
		return c.answer, nil
	}
	if c.leave != nil {
		defer c.leave()
	}
	return alone()
}

// enter counts a running statement until it leaves or its Life is over. b.mu is held.
func (b *Batcher[Q, A]) enter(n *int) (leave func()) {
	*n++
	once := sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		*n--
		b.next()
	})
	life := time.AfterFunc(b.Life, once)
	return func() {
		life.Stop()
		once()
	}
}

// room reports whether one more request may run alone. After a batch, only one may. b.mu is
// held.
func (b *Batcher[Q, A]) room() bool {
	return b.together == 0 && (b.alone == 0 || b.alone < b.From && !b.many)
}

// next sends the queued requests. b.mu is held.
func (b *Batcher[Q, A]) next() {
	n := min(len(b.queue), Max)
	if n < b.Least {
		b.many = b.many && n == 0
		for len(b.queue) > 0 && b.room() {
			first := b.queue[0]
			b.queue = slices.Delete(b.queue, 0, 1)
			first.leave = b.enter(&b.alone)
			close(first.done)
		}
		return
	}
	if b.alone+b.together > 0 {
		return
	}
	b.many = true
	batch := slices.Clone(b.queue[:n])
	b.queue = slices.Delete(b.queue, 0, n)
	leave := b.enter(&b.together)
	b.sent.Go(func() {
		defer leave()
		b.send(batch)
	})
}

func (b *Batcher[Q, A]) send(batch []*request[Q, A]) {
	// The batch outlives the contexts of its requests.
	ctx, cancel := context.WithTimeout(context.Background(), core.CleanupBound())
	defer cancel()
	all := make([]Q, len(batch))
	for i, c := range batch {
		all[i] = c.q
	}
	b.Run(ctx, all, func(i int, a A) { batch[i].answer, batch[i].answered = a, true })
	for _, c := range batch {
		close(c.done)
	}
}

// Queued returns how many requests wait.
func (b *Batcher[Q, A]) Queued() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue)
}

// Wait waits for the running batches. Ask must not be called any more.
func (b *Batcher[Q, A]) Wait() { b.sent.Wait() }
