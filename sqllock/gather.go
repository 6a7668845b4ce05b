package sqllock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
)

const (
	// gatherFrom is how many statements of a kind a process has under way before
	// others wait for them.
	gatherFrom = 4
	// gatherLeast is how many then go together: for fewer a statement each, as
	// soon as there is room, is faster.
	gatherLeast = 8
	// gatherMost is how much one statement takes.
	gatherMost = 64
	// placeLife is how long a statement has others wait: one that waits for a row,
	// or whose connection is gone, holds nobody up for long.
	placeLife = 10 * time.Millisecond
	// writerLife is the same where the database has one writer: beside it the
	// others would only fail.
	writerLife = time.Second
)

// gather sends together what many goroutines ask at the same time. Some go by
// themselves, as one that is alone always does. Where enough come meanwhile, they
// go in one statement when all of those are back, and whoever comes while that is
// under way waits for the next; until fewer come. It answers what it can; who
// gets no answer asks alone.
type gather[Q, A any] struct {
	// from is how many may go by themselves, least how many go together, and life
	// how long a statement has others wait.
	from, least int
	life        time.Duration
	// run asks for all, and tells those that it has an answer for.
	run func(ctx context.Context, all []Q, tell func(i int, a A))

	mu              sync.Mutex
	alone, together int  // statements under way
	many            bool // of late, so that one alone has the others wait
	queue           []*question[Q, A]
	sent            sync.WaitGroup
}

type question[Q, A any] struct {
	q        Q
	done     chan struct{}
	answered bool
	answer   A
	leave    func() // of one that is to ask alone
}

// ask answers q: alone does, or a statement for many. After ctx's error q may
// have been asked.
func (g *gather[Q, A]) ask(ctx context.Context, q Q, alone func() (A, error)) (none A, err error) {
	g.mu.Lock()
	if g.room() && len(g.queue) == 0 {
		leave := g.enter(&g.alone)
		g.mu.Unlock()
		defer leave()
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
		leave := c.leave
		g.mu.Unlock()
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

// enter counts a statement until it leaves, or for its life; g.mu is held.
func (g *gather[Q, A]) enter(n *int) (leave func()) {
	*n++
	once := sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		*n--
		g.next()
	})
	life := time.AfterFunc(g.life, once)
	return func() {
		life.Stop()
		once()
	}
}

// room is whether one more may go by itself: where many come, one has the others
// wait; g.mu is held.
func (g *gather[Q, A]) room() bool {
	return g.together == 0 && (g.alone == 0 || g.alone < g.from && !g.many)
}

// next sends those who came meanwhile; g.mu is held.
func (g *gather[Q, A]) next() {
	n := min(len(g.queue), gatherMost)
	if n < g.least {
		g.many = g.many && n == 0
		for len(g.queue) > 0 && g.room() {
			first := g.queue[0]
			g.queue = slices.Delete(g.queue, 0, 1)
			first.leave = g.enter(&g.alone)
			close(first.done)
		}
		return
	}
	if g.alone+g.together > 0 {
		return
	}
	g.many = true
	batch := slices.Clone(g.queue[:n])
	g.queue = slices.Delete(g.queue, 0, n)
	leave := g.enter(&g.together)
	g.sent.Go(func() {
		defer leave()
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
