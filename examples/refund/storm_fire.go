package main

import (
	"context"
	"errors"
	"io"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/process"
)

const (
	// ordersAtOnce is the number of orders that are refunded concurrently.
	ordersAtOnce = 4
	// killEvery is the approximate number of orders per kill.
	killEvery = 5
	// killWithin is the maximum time between the requests and the kill.
	killWithin = 15 * time.Millisecond
)

// battle is a running storm.
type battle struct {
	*storm
	tally   *tally
	fleet   *fleet
	clients []*process.Process
	fail    context.CancelCauseFunc

	reading, killing sync.WaitGroup
}

// fire starts the processes, sends every order's requests and counts the answers.
func (st *storm) fire(ctx context.Context, stderr io.Writer) (*tally, error) {
	ctx, fail := context.WithCancelCause(ctx)
	b := &battle{storm: st, tally: newTally(st.duplicates), fail: fail}
	b.fleet = &fleet{
		url: st.url, args: []string{"serve", "-merchant", st.run, "-protect", st.protect.name},
		announce: func(i int, address string) {
			for _, c := range b.clients {
				c.Tell("replica", i, address)
			}
		},
	}
	defer b.end()
	if err := b.startClients(); err != nil {
		return nil, err
	}
	if err := b.fleet.start(ctx, st.replicas); err != nil {
		return nil, err
	}
	stop := b.tally.progress(stderr, &b.fleet.kills)
	defer stop()

	for i := range st.orders {
		if err := b.tally.wait(ctx, ordersAtOnce-1); err != nil {
			return nil, err
		}
		b.refund(i)
		if st.kill && i%killEvery == 0 {
			b.killing.Go(func() { b.killOne(ctx) })
		}
	}
	if err := b.tally.wait(ctx, 0); err != nil {
		return nil, err
	}
	b.killing.Wait()
	return b.tally, context.Cause(ctx)
}

func (b *battle) startClients() error {
	for range b.processes {
		c, err := startChild("", "client")
		if err != nil {
			return err
		}
		b.clients = append(b.clients, c)
		b.reading.Go(func() {
			for line := range c.Lines {
				b.tally.answer(strings.Fields(line))
			}
			b.fail(errors.New("a client process ended before its time"))
		})
	}
	return nil
}

// refund makes all clients send order i's requests at the same moment.
func (b *battle) refund(i int) {
	b.tally.sent(b.order(i))
	for n, c := range b.clients {
		if share := b.share(i, n); share > 0 {
			c.Tell("refund", b.order(i), "1", stormAmount, share)
		}
	}
}

// killOne kills a replica while it works on the order just sent.
func (b *battle) killOne(ctx context.Context) {
	time.Sleep(mathrand.N(killWithin))
	if err := b.fleet.restart(ctx, mathrand.IntN(b.replicas)); err != nil {
		b.fail(err)
	}
}

// end ends every process and goroutine, also after a failed storm.
func (b *battle) end() {
	b.fail(nil)
	b.killing.Wait()
	b.fleet.stop()
	for _, c := range b.clients {
		c.Stop()
	}
	b.reading.Wait()
}

// share returns how many of order i's requests client n sends: every client sends some, and the
// rest goes to a different client each time.
func (st *storm) share(i, n int) int {
	share := st.duplicates / st.processes
	if (n+i)%st.processes < st.duplicates%st.processes {
		share++
	}
	return share
}
