// Package batcher coalesces concurrent requests into one statement.
package batcher

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Max is the maximum number of requests in one statement.
const Max = 64

// Batcher coalesces concurrent requests. The first few run alone; once enough wait,
// one statement carries up to Max. A request left unanswered runs alone.
type Batcher[Q, A any] struct {
	// From is how many requests run alone at the same time before others queue. With math.MaxInt
	// all do.
	From int
	// Least is the size of the smallest batch. Fewer requests are faster alone.
	Least int
	// Spread stands in for From, if it is more, until so many requests wait that a batch is faster; and again once
	// a request has run alone and nobody waits.
	Spread int
	// Life bounds how long a statement makes other requests wait. A statement that waits for a
	// row, or whose connection is dead, delays others no longer than that.
	Life time.Duration
	// Run sends a batch and calls answer for each request that it can answer. gone reports whether the caller of a request
	// waits no more.
	Run func(ctx context.Context, all []Q, gone func(i int) bool, answer func(i int, a A))

	mu              sync.Mutex
	alone, together int       // running statements
	running         []running // the same, since when
	last            uint64    // the id of the last of them
	overdue         *time.Timer
	many            bool // the last statement was a batch: a request that runs alone makes others wait
	crowded         bool // there was a batch, and somebody waited whenever a request had run alone since
	queue           []*request[Q, A]
	sent            sync.WaitGroup
}

// running is a statement under way.
type running struct {
	id    uint64
	count *int // alone or together
	since time.Time
}

type request[Q, A any] struct {
	q        Q
	done     chan struct{}
	gone     atomic.Bool
	answered bool
	answer   A
	alone    uint64 // the id of its statement, if the request must run alone
}

// Enter reports whether a request may run alone now. The caller must then call Leave with its place.
func (b *Batcher[Q, A]) Enter() (place uint64, room bool) {
	if b.From == math.MaxInt {
		return 0, true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(time.Now())
	if room = b.room() && len(b.queue) == 0; room {
		place = b.enter(&b.alone)
	}
	return place, room
}

// Ask answers q, by running alone or in a batch. If Ask returns ctx's error, q may have been
// sent.
func (b *Batcher[Q, A]) Ask(ctx context.Context, q Q, alone func() (A, error)) (A, error) {
	if b.From == math.MaxInt {
		return alone()
	}
	b.mu.Lock()
	if b.room() && len(b.queue) == 0 {
		place := b.enter(&b.alone)
		b.mu.Unlock()
		defer b.Leave(place)
		return alone()
	}
	c := &request[Q, A]{q: q, done: make(chan struct{})}
	b.queue = append(b.queue, c)
	b.watch()
	b.mu.Unlock()
	return b.wait(ctx, c, alone)
}

// wait waits for the answer to a queued request.
func (b *Batcher[Q, A]) wait(ctx context.Context, c *request[Q, A], alone func() (A, error)) (none A, err error) {
	select {
	case <-c.done:
	case <-ctx.Done():
		c.gone.Store(true)
		b.mu.Lock()
		b.queue = slices.DeleteFunc(b.queue, func(other *request[Q, A]) bool { return other == c })
		id := c.alone
		b.mu.Unlock()
		b.Leave(id)
		return none, context.Cause(ctx)
	}
	if c.answered {
		return c.answer, nil
	}
	defer b.Leave(c.alone)
	return alone()
}

// enter counts a running statement until it leaves or its Life is over. b.mu is held.
func (b *Batcher[Q, A]) enter(count *int) (id uint64) {
	*count++
	b.last++
	b.running = append(b.running, running{b.last, count, time.Now()})
	return b.last
}

// Leave says that a statement has run. It may be forgotten already. No statement has the id 0.
func (b *Batcher[Q, A]) Leave(id uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, r := range b.running {
		if r.id == id {
			*r.count--
			b.running = slices.Delete(b.running, i, i+1)
			b.crowded = b.crowded && (len(b.queue) > 0 || r.count == &b.together)
			b.next()
			return
		}
	}
}

// forget stops counting statements whose Life is over. b.mu is held.
func (b *Batcher[Q, A]) forget(now time.Time) {
	n := 0 // the oldest comes first
	for n < len(b.running) && now.Sub(b.running[n].since) >= b.Life {
		*b.running[n].count--
		n++
	}
	b.running = slices.Delete(b.running, 0, n)
}

// watch ends the wait of the queue once the Life of the oldest statement is over. It is called when a request
// comes to wait, and then whenever its timer fires, which may be early: the oldest may have left. b.mu is held.
func (b *Batcher[Q, A]) watch() {
	if len(b.queue) == 0 || len(b.running) == 0 {
		return
	}
	life := time.Until(b.running[0].since.Add(b.Life))
	if b.overdue == nil {
		b.overdue = time.AfterFunc(life, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.forget(time.Now())
			b.next()
			b.watch()
		})
		return
	}
	b.overdue.Reset(life)
}

// room reports whether one more request may run alone. After a batch, only one may. b.mu is
// held.
func (b *Batcher[Q, A]) room() bool {
	from := b.From
	if !b.crowded {
		from = max(from, b.Spread)
	}
	return b.together == 0 && (b.alone == 0 || b.alone < from && !b.many)
}

// next sends the queued requests. b.mu is held.
func (b *Batcher[Q, A]) next() {
	n := min(len(b.queue), Max)
	least := b.Least
	if !b.crowded {
		least = max(least, b.Spread*3/2)
	}
	if n < least {
		b.many = b.many && n == 0
		for len(b.queue) > 0 && b.room() {
			first := b.queue[0]
			b.queue = slices.Delete(b.queue, 0, 1)
			first.alone = b.enter(&b.alone)
			close(first.done)
		}
		return
	}
	if b.alone+b.together > 0 {
		return
	}
	b.many, b.crowded = true, true
	batch := slices.Clone(b.queue[:n])
	b.queue = slices.Delete(b.queue, 0, n)
	id := b.enter(&b.together)
	b.sent.Go(func() {
		defer b.Leave(id)
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
	b.Run(ctx, all, func(i int) bool { return batch[i].gone.Load() }, func(i int, a A) { batch[i].answer, batch[i].answered = a, true })
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
