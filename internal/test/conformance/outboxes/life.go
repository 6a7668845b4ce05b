package outboxes

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency/outbox"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// stopped ends a relay's context while it publishes. The message is free at once, and counts no
// attempt.
func stopped[Tx any](e *env[Tx]) {
	e.write(message("a", 0), message("a", 1))
	b := &broker{}
	ctx, stop := context.WithCancel(e.Ctx)
	r := e.relay(func(ctx context.Context, _ outbox.Delivery) error {
		stop()
		return ctx.Err()
	}, outbox.Options{Lease: time.Hour})
	if _, err := r.Pass(ctx); err != nil && !errors.Is(err, context.Canceled) {
		e.Error(err)
	}
	if n := e.pass(e.relay(b.publish, outbox.Options{})); n != 2 || b.all()[0].Attempt != 1 {
		e.Errorf("%d were published, want 2 at once: %+v", n, b.all())
	}
}

// runs checks Run: it publishes what Wake announces without waiting for the poll, and clears.
func runs[Tx any](e *env[Tx]) {
	b := &broker{}
	r := e.relay(b.publish, outbox.Options{Poll: time.Hour, Keep: 50 * time.Millisecond})
	ctx, stop := context.WithCancel(e.Ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.Run(ctx); !errors.Is(err, context.Canceled) {
			e.Error(err)
		}
	})
	for n := range 3 {
		e.write(message("a", n))
		r.Wake()
		e.Eventually("it is published", func() bool { return len(b.all()) == n+1 })
	}
	stop()
	wg.Wait()
}

// cleared checks what Clear deletes: what was published or discarded, and the row of a key without
// messages.
func cleared[Tx any](e *env[Tx]) {
	e.write(message("a", 0), message("a", 1), message("b", 0), message("c", 0), message("d", 0))
	b := &broker{}
	fails := atomic.Bool{}
	fails.Store(true)
	r := e.relay(func(ctx context.Context, d outbox.Delivery) error {
		if fails.Load() && (d.Key == "c" || d.Key == "d") {
			return outbox.Permanent(errBroker)
		}
		return b.publish(ctx, d)
	}, outbox.Options{})
	e.pass(r)
	letters, err := core.First(10, e.box.DeadLetters(e.Ctx))
	e.Check(err)
	for _, l := range letters {
		if l.Key == "d" {
			e.Check(e.box.Discard(e.Ctx, l, who))
		}
	}
	e.write(message("b", 1))
	rows := func() (messages, keys int) {
		return e.Int(`SELECT COUNT(*) FROM holdfast_outbox`), e.Int(`SELECT COUNT(*) FROM holdfast_outbox_keys`)
	}
	if n, err := e.box.Clear(e.Ctx, time.Hour); n != 0 || err != nil {
		e.Errorf("%d messages were deleted early, %v", n, err)
	}
	if n, err := e.box.Clear(e.Ctx, 0); n != 4 || err != nil {
		e.Errorf("%d messages were deleted, %v, want a/0, a/1, b/0 and d/0", n, err)
	}
	if m, k := rows(); m != 2 || k != 2 {
		e.Errorf("%d messages and %d keys are left, want b/1 and the dead c/0", m, k)
	}
	e.write(message("a", 2)) // the key comes again
	e.pass(r)
	if n := b.inOrder(e); n != 5 {
		e.Errorf("%d were published, want 5", n)
	}
}

// ownersAndKeys checks that keys are compared byte for byte and within their owner: a dead letter
// holds up its own key only.
func ownersAndKeys[Tx any](e *env[Tx]) {
	e.AnyOwner()
	e.box = open(e.Env, name)
	want := 0
	var all []outbox.Message
	for _, owner := range []string{"", "shop", "Shop", "shop "} {
		for _, key := range conformance.Keys() {
			if len(key) <= 255 {
				all = append(all, outbox.Message{Owner: owner, Key: key, Body: []byte("0")}, outbox.Message{Owner: owner, Key: key, Body: []byte("1")})
				want++
			}
		}
	}
	e.Check(e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error { return e.box.Write(ctx, tx, all...) }))
	b := &broker{}
	r := e.relay(func(ctx context.Context, d outbox.Delivery) error {
		if d.Owner == "shop" && d.Key == "key" {
			return outbox.Permanent(errBroker)
		}
		return b.publish(ctx, d)
	}, outbox.Options{Poll: time.Millisecond})
	for more := true; more; {
		more = e.pass(r) > 0
	}
	if n := b.inOrder(e); n != 2*(want-1) {
		e.Errorf("%d messages were published, want those of %d keys", n, want-1)
	}
	other := &broker{}
	if n := e.pass(e.other("payouts", other)); n != 0 {
		e.Errorf("the relay of another outbox published %d", n)
	}
}

func (e *env[Tx]) other(name string, b *broker) *outbox.Relay[Tx] {
	e.Helper()
	r, err := outbox.NewRelay(open(e.Env, name), b.publish)
	e.Check(err)
	return r
}

// input checks what is refused before anything is sent, and that the transaction then goes on.
func input[Tx any](e *env[Tx]) {
	for what, m := range map[string]outbox.Message{
		"no key": {}, "a long key": {Key: strings.Repeat("k", 256)}, "a large body": {Key: "k", Body: make([]byte, 1<<20+1)},
		"a bad owner": {Key: "k", Owner: "a\x00"}, "a bad id": {Key: "k", ID: "\xff"}, "a bad topic": {Key: "k", Topic: "a\x00"},
		"a header's text": {Key: "k", Headers: map[string]string{"customer": "caf\xe9"}}, "a header's name": {Key: "k", Headers: map[string]string{"caf\xe9": "1"}},
		"large headers": {Key: "k", Headers: map[string]string{"a": strings.Repeat("x", 1<<20)}},
	} {
		err := e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
			if err := e.box.Write(ctx, tx, message("a", 0), m); !errors.Is(err, holdfast.ErrInvalid) {
				e.Errorf("%s: %v", what, err)
			}
			return e.Effect(ctx, tx, what)
		})
		e.Check(err)
		e.WantOnce(what)
	}
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_outbox`); n != 0 {
		e.Errorf("%d messages were written", n)
	}
	var none Tx
	if err := e.box.Write(e.Ctx, none, message("a", 0)); !errors.Is(err, holdfast.ErrNoTx) {
		e.Errorf("without a transaction: %v", err)
	}
	for _, o := range []outbox.Options{{Lease: 1}, {Lease: 48 * time.Hour}, {Keys: -1}, {MaxAttempts: 2}, {Backoff: -1}, {Backoff: time.Hour, MaxBackoff: 1}} {
		if _, err := outbox.NewRelay(e.box, (&broker{}).publish, o); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%+v: %v", o, err)
		}
	}
	for _, bad := range []string{"", "a\x00b", strings.Repeat("x", 200)} {
		if _, err := outbox.New(e.Ctx, e.DB, bad); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("name %q: %v", bad, err)
		}
	}
}
