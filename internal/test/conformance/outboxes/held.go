package outboxes

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/idempotency/outbox"
	"github.com/holdfast-go/holdfast/internal/core"
)

// heldUpKeyHidesNone puts more messages behind a dead letter than a pass reads. Another key is
// published all the same, and the messages behind the letter as soon as it is given up.
func heldUpKeyHidesNone[Tx any](e *env[Tx]) {
	const behind = 600
	many := make([]outbox.Message, behind)
	for i := range many {
		many[i] = message("a", i)
	}
	e.Check(e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error { return e.box.Write(ctx, tx, many...) }))
	b := &broker{}
	var poison atomic.Bool
	poison.Store(true)
	r := e.relay(func(ctx context.Context, d outbox.Delivery) error {
		if poison.Load() && d.Key == "a" {
			return outbox.Permanent(errBroker)
		}
		return b.publish(ctx, d)
	}, outbox.Options{Batch: 200})
	e.pass(r)
	e.write(message("b", 0))
	if e.pass(r); e.pass(r) != 1 {
		e.Errorf("%v were published, want that of the other key", b.bodies())
	}
	letters, err := core.First(10, e.box.DeadLetters(e.Ctx))
	e.Check(err)
	poison.Store(false)
	e.Check(e.box.Discard(e.Ctx, letters[0], who))
	if n := e.pass(r); n != behind-1 {
		e.Errorf("%d messages were published, want %d", n, behind-1)
	}
	b.inOrder(e)
}

// putOffMessage writes a message while the one before it is being published. Another relay puts the
// message off for the length of that lease. The relay that has the lease publishes it at once, and so
// does any other if that relay is stopped.
func putOffMessage[Tx any](e *env[Tx]) {
	for _, stops := range []bool{false, true} {
		b := &broker{}
		e.write(message("a", 0))
		inside, wake := make(chan struct{}, 1), make(chan struct{})
		ctx, stop := context.WithCancel(e.Ctx)
		r := e.relay(func(_ context.Context, d outbox.Delivery) error {
			if string(d.Body) == "a/0" {
				inside <- struct{}{}
				<-wake
			}
			return b.publish(e.Ctx, d)
		}, outbox.Options{})
		var wg sync.WaitGroup
		wg.Go(func() {
			if n, err := r.Pass(ctx); !stops && (n != 2 || err != nil) {
				e.Errorf("%d messages were published, %v, want 2", n, err)
			}
		})
		<-inside
		e.write(message("a", 1))
		other := e.relay(b.publish, outbox.Options{})
		if n := e.pass(other); n != 0 {
			e.Errorf("%d messages were published behind one that is not", n)
		}
		if stops {
			stop()
		}
		close(wake)
		wg.Wait()
		stop()
		e.pass(other)
		if got := b.bodies(); len(got) != 2 || got[0] != "a/0" || got[1] != "a/1" {
			e.Errorf("stopped %v: published %v", stops, got)
		}
	}
}
