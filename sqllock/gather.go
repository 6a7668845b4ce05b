package sqllock

import (
	"context"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast"
)

const (
	// gatherFrom is how many statements of a kind a process has under way before
	// it gathers what else is asked for into one.
	gatherFrom = 4
	// gatherMost is how much one statement takes.
	gatherMost = 64
)

// gather sends together what several goroutines ask at the same time. The first
// few go by themselves, as one that is alone always does; those that come
// meanwhile go in one statement as soon as one of those is back. It answers what
// it can; who gets no answer asks alone.
type gather[Q, A any] struct {
	// run asks for all, and tells those that it has an answer for.
	run func(ctx context.Context, all []Q, tell func(i int, a A))

	mu    sync.Mutex
	busy  int
	queue []*question[Q, A]
	sent  sync.WaitGroup
}

type question[Q, A any] struct {
	q        Q
	done     chan struct{}
	answered bool
	answer   A
}

// ask answers q: alone does, or a statement for many. After ctx's error q may
// have been asked.
func (g *gather[Q, A]) ask(ctx context.Context, q Q, alone func() (A, error)) (none A, err error) {
	g.mu.Lock()
	if g.busy < gatherFrom {
		g.busy++
		g.mu.Unlock()
		defer g.next()
		return alone()
	}
	c := &question[Q, A]{q: q, done: make(chan struct{})}
	g.queue = append(g.queue, c)
	g.mu.Unlock()
	select {
	case <-c.done:
	case <-ctx.Done():
		g.mu.Lock()
		g.queue = slices.DeleteFunc(g.queue, func(other *question[Q, A]) bool { return other == c })
		g.mu.Unlock()
		return none, context.Cause(ctx)
	}
	if c.answered {
		return c.answer, nil
	}
	return alone()
}

// next gives a place that was left to those who came meanwhile.
func (g *gather[Q, A]) next() {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.queue), gatherMost)
	if n == 0 {
		g.busy--
		return
	}
	batch := slices.Clone(g.queue[:n])
	g.queue = slices.Delete(g.queue, 0, n)
	g.sent.Go(func() {
		defer g.next()
		g.send(batch)
	})
}

func (g *gather[Q, A]) send(batch []*question[Q, A]) {
	// It outlives the contexts of those who ask.
	ctx, cancel := context.WithTimeout(context.Background(), holdfast.CleanupTimeout)
	defer cancel()
	all := make([]Q, len(batch))
	for i, c := range batch {
		all[i] = c.q
	}
	g.run(ctx, all, func(i int, a A) { batch[i].answer, batch[i].answered = a, true })
	for _, c := range batch {
		close(c.done)
	}
}

// wait waits for what was sent; nobody asks any more.
func (g *gather[Q, A]) wait() { g.sent.Wait() }
