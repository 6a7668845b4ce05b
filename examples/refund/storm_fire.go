package main

import (
	"context"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"time"
)

const (
	// ordersAtOnce is how many orders are under fire at the same time.
	ordersAtOnce = 4
	// killEvery is how many orders there are, roughly, to one kill.
	killEvery = 5
	// killWithin is how soon after its requests the kill comes.
	killWithin = 15 * time.Millisecond
)

// fire starts the processes, has every order's requests sent and counts the answers.
func (st *storm) fire(ctx context.Context, stderr io.Writer) (*tally, error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)

	t := newTally(st.duplicates)
	var clients []*child
	var reading, killing sync.WaitGroup
	fleet := &fleet{url: st.url, args: []string{"serve", "-merchant", st.run, "-protect", st.protect.name}}
	fleet.announce = func(i int, address string) {
		for _, c := range clients {
			c.tell("replica", i, address)
		}
	}
	defer func() { // however it ends: no process and no goroutine is left
		fail(nil)
		killing.Wait()
		fleet.stop()
		for _, c := range clients {
			_ = c.cmd.Process.Kill()
		}
		reading.Wait()
		for _, c := range clients {
			c.kill()
		}
	}()

	for range st.processes {
		c, err := startChild("", "client")
		if err != nil {
			return nil, err
		}
		clients = append(clients, c)
		reading.Go(func() {
			for line := range c.lines {
				t.answer(strings.Fields(line))
			}
			fail(fmt.Errorf("a client process ended before its time"))
		})
	}
	if err := fleet.start(ctx, st.replicas); err != nil {
		return nil, err
	}
	stop := t.progress(stderr, &fleet.kills)
	defer stop()

	for i := range st.orders {
		if err := t.wait(ctx, ordersAtOnce-1); err != nil {
			return nil, err
		}
		t.sent(st.order(i))
		for n, c := range clients {
			if share := st.share(i, n); share > 0 {
				c.tell("refund", st.order(i), "1", stormAmount, share)
			}
		}
		if st.kill && i%killEvery == 0 {
			killing.Go(func() {
				time.Sleep(mathrand.N(killWithin))
				if err := fleet.restart(ctx, mathrand.IntN(st.replicas)); err != nil {
					fail(err)
				}
			})
		}
	}
	return t, t.wait(ctx, 0)
}

// share is how many of order i's requests client n sends: all clients send
// some, and the rest goes to another client each time.
func (st *storm) share(i, n int) int {
	share := st.duplicates / st.processes
	if (n+i)%st.processes < st.duplicates%st.processes {
		share++
	}
	return share
}
