package batcher

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const life = 10 * time.Millisecond

// asked returns a Batcher that answers only even numbers, and the batches that it ran.
func asked() (g *Batcher[int, int], batches *[][]int) {
	batches = &[][]int{}
	return &Batcher[int, int]{From: 4, Least: 2, Life: life, Run: func(_ context.Context, all []int, _ func(i int) bool, tell func(i, a int)) {
		*batches = append(*batches, slices.Sorted(slices.Values(all)))
		for i, q := range all {
			if q%2 == 0 {
				tell(i, 10*q)
			}
		}
	}}, batches
}

// idle checks that no request is running or queued.
func idle(t *testing.T, g *Batcher[int, int]) {
	t.Helper()
	g.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.alone != 0 || g.together != 0 || len(g.queue) != 0 {
		t.Errorf("under way: %d alone, %d together, %d waiting", g.alone, g.together, len(g.queue))
	}
}

// TestBatcher checks that the first few requests run alone, that requests which arrive during
// those run together, that a request left unanswered runs alone, and that a cancelled request
// is not sent.
func TestBatcher(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, batches := asked()
		var alone atomic.Int32
		hold := make(chan struct{})
		var all sync.WaitGroup
		for range g.From {
			all.Go(func() {
				if _, err := g.Ask(t.Context(), -1, func() (int, error) { <-hold; return 0, nil }); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		given, giveUp := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() {
			_, err := g.Ask(given, 100, func() (int, error) { return 0, errors.New("asked alone") })
			gone <- err
		}()
		synctest.Wait()
		for q := range 6 {
			all.Go(func() {
				a, err := g.Ask(t.Context(), q, func() (int, error) { alone.Add(1); return 10 * q, nil })
				if a != 10*q || err != nil {
					t.Errorf("%d: %d, %v", q, a, err)
				}
			})
		}
		synctest.Wait()
		giveUp()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		close(hold)
		all.Wait()
		g.Wait()
		if len(*batches) != 1 || !slices.Equal((*batches)[0], []int{0, 1, 2, 3, 4, 5}) {
			t.Errorf("asked together: %v", *batches)
		}
		if alone.Load() != 3 {
			t.Errorf("%d asked alone", alone.Load())
		}
		idle(t, g)
	})
}

// TestBatcherFew checks that fewer requests than Least run alone as soon as there is room.
// Once enough requests wait, only one request at a time runs alone, until fewer wait.
func TestBatcherFew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, batches := asked()
		g.From, g.Least = 2, 3
		var all sync.WaitGroup
		var alone atomic.Int32
		hold := make(chan struct{})
		come := func(n int) {
			for range n {
				all.Go(func() {
					_, _ = g.Ask(t.Context(), 2, func() (int, error) { alone.Add(1); <-hold; alone.Add(-1); return 0, nil })
				})
				synctest.Wait()
			}
		}
		under := func(want int32, waiting, sent int) {
			t.Helper()
			g.mu.Lock()
			defer g.mu.Unlock()
			if n := alone.Load(); n != want || len(g.queue) != waiting || len(*batches) != sent {
				t.Errorf("%d alone, %d waiting, %d sent together; want %d, %d, %d", n, len(g.queue), len(*batches), want, waiting, sent)
			}
		}
		back := func() { hold <- struct{}{}; synctest.Wait() }
		come(4)
		under(2, 2, 0)
		back()
		under(2, 1, 0)
		come(2)
		under(2, 3, 0)
		back()
		under(1, 3, 0) // enough for a batch, so they wait for the last one that runs alone
		come(1)
		under(1, 4, 0) // and so does who comes
		back()
		under(0, 0, 1)
		come(3)
		under(1, 2, 1) // enough wait, so one runs alone
		back()
		under(2, 0, 1) // fewer than Least wait
		come(1)
		under(2, 1, 1)
		close(hold)
		all.Wait()
		idle(t, g)
	})
}

// TestBatcherSlow checks that a statement that hangs delays the others only for Life, and that
// a request that waited without others runs alone.
func TestBatcherSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, batches := asked()
		g.From = 1
		hold := make(chan struct{})
		var all sync.WaitGroup
		begun := time.Now()
		for n := range 3 {
			all.Go(func() {
				_, _ = g.Ask(t.Context(), 2*n, func() (int, error) { <-hold; return 0, nil })
			})
			synctest.Wait()
		}
		// The first request hangs. The other two run together once Life has passed.
		time.Sleep(life)
		synctest.Wait()
		if len(*batches) != 1 || len((*batches)[0]) != 2 {
			t.Errorf("asked together: %v", *batches)
		}
		var took time.Duration
		all.Go(func() {
			_, _ = g.Ask(t.Context(), 8, func() (int, error) { <-hold; return 0, nil })
		})
		synctest.Wait()
		all.Go(func() {
			_, _ = g.Ask(t.Context(), 10, func() (int, error) { took = time.Since(begun); return 0, nil })
		})
		time.Sleep(2 * life)
		synctest.Wait()
		if took != 2*life {
			t.Errorf("the last asked after %s", took)
		}
		close(hold)
		all.Wait()
		idle(t, g)
	})
}

// TestBatcherSpread checks that more requests run alone as long as few wait, and that a batch goes once so many do
// that it is worth the wait; and again after that.
func TestBatcherSpread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, batches := asked()
		g.Spread = 6
		g.Life = time.Hour
		var all sync.WaitGroup
		hold := make(chan struct{})
		var alone atomic.Int32
		ask := func(n int) {
			for range n {
				all.Go(func() {
					if _, err := g.Ask(t.Context(), 2, func() (int, error) { alone.Add(1); <-hold; return 0, nil }); err != nil {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
		}
		is := func(running, waiting, sent int) {
			t.Helper()
			if int(alone.Load()) != running || g.Queued() != waiting || len(*batches) != sent {
				t.Errorf("%d ran alone, %d wait, %d batches; not %d, %d, %d", alone.Load(), g.Queued(), len(*batches), running, waiting, sent)
			}
		}
		ask(14) // 6 and 8: less than a batch of 9
		is(6, 8, 0)
		hold <- struct{}{}
		synctest.Wait()
		is(7, 7, 0)
		ask(3) // 10, and 9 once one has left
		for range 6 {
			hold <- struct{}{}
		}
		synctest.Wait()
		is(7, 0, 1)
		ask(3) // after a batch one runs alone, and two are a batch
		is(8, 2, 1)
		hold <- struct{}{}
		synctest.Wait()
		is(8, 0, 2)
		ask(1)
		hold <- struct{}{} // nobody waits
		synctest.Wait()
		ask(7) // the first of them still runs alone
		is(10, 6, 2)
		hold <- struct{}{}
		synctest.Wait()
		is(16, 0, 2)
		ask(9)
		for range 6 {
			hold <- struct{}{}
		}
		synctest.Wait()
		is(16, 0, 3)
		ask(2)
		hold <- struct{}{}
		synctest.Wait()
		ask(4) // somebody has waited whenever one had run alone: From run, and not Spread
		is(21, 1, 3)
		close(hold)
		all.Wait()
		idle(t, g)
	})
}
