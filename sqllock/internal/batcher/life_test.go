package batcher

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestBatcherFull checks that what is more than a batch carries, and who comes while it runs, waits for it, at most
// for its Life.
func TestBatcherFull(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]int{"more": 0, "late": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { full(t, late) })
		})
	}
}

// full asks for two more than a batch, of which some come late.
func full(t *testing.T, late int) {
	var sent, alone atomic.Int32
	hold, back := make(chan struct{}), make(chan struct{})
	g := &Batcher[int, int]{From: 1, Least: 2, Life: life, Run: func(_ context.Context, all []int, _ func(i int) bool, tell func(i, a int)) {
		sent.Add(1)
		<-back
		for i := range all {
			tell(i, 0)
		}
	}}
	var all sync.WaitGroup
	ask := func(n int) {
		for range n {
			all.Go(func() {
				_, _ = g.Ask(t.Context(), 0, func() (int, error) { alone.Add(1); <-hold; return 0, nil })
			})
		}
		synctest.Wait()
	}
	is := func(waiting, batches int) {
		t.Helper()
		if g.Queued() != waiting || int(sent.Load()) != batches || alone.Load() != 1 {
			t.Errorf("%d wait, %d batches, %d ran alone; want %d, %d, 1", g.Queued(), sent.Load(), alone.Load(), waiting, batches)
		}
	}
	ask(1 + Max + 2 - late)
	is(Max+2-late, 0)
	time.Sleep(life / 2)
	close(hold)
	synctest.Wait()
	ask(late)
	is(2, 1)
	time.Sleep(life / 2) // the Life of the one that ran alone
	synctest.Wait()
	is(2, 1)
	time.Sleep(life / 2)
	synctest.Wait()
	is(0, 2)
	close(back)
	all.Wait()
	idle(t, g)
}

// TestBatcherOverdue lets two statements hang, of which one began later: those who are enough for a batch wait
// for both.
func TestBatcherOverdue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, batches := asked()
		g.From = 2
		var all sync.WaitGroup
		hold := make(chan struct{})
		for _, n := range []int{1, 3} {
			for range n {
				all.Go(func() {
					_, _ = g.Ask(t.Context(), 2, func() (int, error) { <-hold; return 0, nil })
				})
			}
			time.Sleep(life / 2)
			synctest.Wait()
		}
		if n := g.Queued(); n != 2 {
			t.Errorf("%d wait for the second", n)
		}
		time.Sleep(life / 2)
		synctest.Wait()
		if len(*batches) != 1 || g.Queued() != 0 {
			t.Errorf("%d batches, %d wait", len(*batches), g.Queued())
		}
		close(hold)
		all.Wait()
		idle(t, g)
	})
}

// TestEnter checks that a request enters where one that asks would run alone.
func TestEnter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := asked()
		enter := func(want bool) (place uint64) {
			t.Helper()
			place, room := g.Enter()
			if room != want {
				t.Errorf("entered: %v", room)
			}
			return place
		}
		g.From = 1
		first := enter(true)
		enter(false)
		g.Leave(first)
		hung := enter(true)
		time.Sleep(life)
		enter(true) // the one that hangs counts no more
		g.Leave(hung)
		enter(false)
		// Those who wait come first, also when the timer that sends them is about to fire.
		var all sync.WaitGroup
		ask := func() {
			all.Go(func() { _, _ = g.Ask(t.Context(), 1, func() (int, error) { return 0, nil }) })
			synctest.Wait()
		}
		ask()
		g.mu.Lock()
		g.forget(time.Now().Add(life))
		g.mu.Unlock()
		enter(false)
		ask()
		all.Wait()
		idle(t, g)

		g.From = math.MaxInt
		for range 2 {
			if enter(true) != 0 {
				t.Error("a place in a Batcher in which all run alone")
			}
		}
		idle(t, g)
	})
}

// TestLeaveUnsent gives up a request that may run alone by then: its place is free again.
func TestLeaveUnsent(t *testing.T) {
	t.Parallel()
	g, _ := asked()
	g.From, g.Life = 1, time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	chosen := make(chan struct{})
	close(chosen)
	for range 64 { // which of both a call sees first is chosen at random
		place, room := g.Enter()
		if !room {
			t.Fatal("a place was not given back")
		}
		_, _ = g.wait(ctx, &request[int, int]{done: chosen, alone: place}, func() (int, error) { return 0, nil })
	}
	idle(t, g)
}
