package sqllock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// TestGather: the first few ask alone, those that come meanwhile ask together,
// who gets no answer asks alone, and who gives up is not asked for.
func TestGather(t *testing.T) {
	t.Parallel()
	var batches [][]int
	var mu sync.Mutex
	g := gather[int, int]{run: func(_ context.Context, all []int, tell func(i, a int)) {
		mu.Lock()
		defer mu.Unlock()
		batches = append(batches, slices.Sorted(slices.Values(all)))
		for i, q := range all {
			if q%2 == 0 {
				tell(i, 10*q)
			}
		}
	}}
	var alone atomic.Int32
	hold := make(chan struct{})
	var first, others sync.WaitGroup
	for range gatherFrom {
		first.Go(func() {
			if _, err := g.ask(t.Context(), -1, func() (int, error) { <-hold; return 0, nil }); err != nil {
				t.Error(err)
			}
		})
	}
	queued := func(n int) {
		for {
			g.mu.Lock()
			busy, got := g.busy, len(g.queue)
			g.mu.Unlock()
			if busy == gatherFrom && got == n {
				return
			}
		}
	}
	queued(0)
	given, giveUp := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, err := g.ask(given, 100, func() (int, error) { return 0, errors.New("asked alone") })
		gone <- err
	}()
	queued(1)
	giveUp()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for q := range 6 {
		others.Go(func() {
			a, err := g.ask(t.Context(), q, func() (int, error) { alone.Add(1); return 10 * q, nil })
			if a != 10*q || err != nil {
				t.Errorf("%d: %d, %v", q, a, err)
			}
		})
	}
	queued(6)
	close(hold)
	first.Wait()
	others.Wait()
	g.wait()
	if len(batches) != 1 || !slices.Equal(batches[0], []int{0, 1, 2, 3, 4, 5}) {
		t.Errorf("asked together: %v", batches)
	}
	if alone.Load() != 3 {
		t.Errorf("%d asked alone", alone.Load())
	}
	if g.busy != 0 {
		t.Errorf("%d places are taken", g.busy)
	}
}
