package sqllock

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

// asked is a gather that answers even numbers, and what went together.
func asked() (g *gather[int, int], batches *[][]int) {
	batches = &[][]int{}
	return &gather[int, int]{from: 4, least: 2, life: placeLife, run: func(_ context.Context, all []int, tell func(i, a int)) {
		*batches = append(*batches, slices.Sorted(slices.Values(all)))
		for i, q := range all {
			if q%2 == 0 {
				tell(i, 10*q)
			}
		}
	}}, batches
}

// idle checks that nothing is under way.
func idle(t *testing.T, g *gather[int, int]) {
	t.Helper()
	g.wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.alone != 0 || g.together != 0 || len(g.queue) != 0 {
		t.Errorf("under way: %d alone, %d together, %d waiting", g.alone, g.together, len(g.queue))
	}
}

// TestGather: the first few ask alone, those that come meanwhile ask together,
// who gets no answer asks alone, and who gives up is not asked for.
func TestGather(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, batches := asked()
		var alone atomic.Int32
		hold := make(chan struct{})
		var all sync.WaitGroup
		for range g.from {
			all.Go(func() {
				if _, err := g.ask(t.Context(), -1, func() (int, error) { <-hold; return 0, nil }); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		given, giveUp := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() {
			_, err := g.ask(given, 100, func() (int, error) { return 0, errors.New("asked alone") })
			gone <- err
		}()
		synctest.Wait()
		giveUp()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		for q := range 6 {
			all.Go(func() {
				a, err := g.ask(t.Context(), q, func() (int, error) { alone.Add(1); return 10 * q, nil })
				if a != 10*q || err != nil {
					t.Errorf("%d: %d, %v", q, a, err)
				}
			})
		}
		synctest.Wait()
		close(hold)
		all.Wait()
		g.wait()
		if len(*batches) != 1 || !slices.Equal((*batches)[0], []int{0, 1, 2, 3, 4, 5}) {
			t.Errorf("asked together: %v", *batches)
		}
		if alone.Load() != 3 {
			t.Errorf("%d asked alone", alone.Load())
		}
		idle(t, g)
	})
}

// TestGatherFew: fewer than pay for a statement for many go by themselves, as soon
// as there is room; where enough come one goes by itself, until fewer come.
func TestGatherFew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, batches := asked()
		g.from, g.least = 2, 3
		var all sync.WaitGroup
		var alone atomic.Int32
		hold := make(chan struct{})
		come := func(n int) {
			for range n {
				all.Go(func() {
					_, _ = g.ask(t.Context(), 2, func() (int, error) { alone.Add(1); <-hold; alone.Add(-1); return 0, nil })
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
		under(1, 3, 0) // enough, so they wait for the other one
		back()
		under(0, 0, 1)
		come(3)
		under(1, 2, 1) // of many, one
		back()
		under(2, 0, 1) // they were not
		come(1)
		under(2, 1, 1)
		close(hold)
		all.Wait()
		idle(t, g)
	})
}

// TestGatherSlow: a statement that hangs holds the others up for a moment only,
// and one that waited by itself asks alone.
func TestGatherSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, batches := asked()
		g.from = 1
		hold := make(chan struct{})
		var all sync.WaitGroup
		begun := time.Now()
		for n := range 3 {
			all.Go(func() {
				_, _ = g.ask(t.Context(), 2*n, func() (int, error) { <-hold; return 0, nil })
			})
			synctest.Wait()
		}
		// The first hangs; the other two, together, when its place has gone.
		time.Sleep(placeLife)
		synctest.Wait()
		if len(*batches) != 1 || len((*batches)[0]) != 2 {
			t.Errorf("asked together: %v", *batches)
		}
		var took time.Duration
		all.Go(func() {
			_, _ = g.ask(t.Context(), 8, func() (int, error) { <-hold; return 0, nil })
		})
		synctest.Wait()
		all.Go(func() {
			_, _ = g.ask(t.Context(), 10, func() (int, error) { took = time.Since(begun); return 0, nil })
		})
		time.Sleep(2 * placeLife)
		synctest.Wait()
		if took != 2*placeLife {
			t.Errorf("the last asked after %s", took)
		}
		close(hold)
		all.Wait()
		idle(t, g)
	})
}
