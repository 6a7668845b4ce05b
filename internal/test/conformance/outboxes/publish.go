package outboxes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/outbox"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

var errBroker = errors.New("the broker is away")

// writtenWithItsCause checks that a message is published if, and only if, its transaction committed.
func writtenWithItsCause[Tx any](e *env[Tx]) {
	e.AnyOwner()
	e.box = open(e.Env, name)
	store := e.Store(idempotency.Options{})
	for _, fails := range []error{errBroker, nil, nil} { // the last one is a duplicate
		_, err := idempotency.Do(e.Ctx, store, conformance.Op("42"), func(ctx context.Context, tx Tx) (string, error) {
			m := outbox.Message{Owner: "shop", Key: "order-42", ID: "refund-42", Topic: "made", Headers: map[string]string{"trace": "1"}, Body: []byte("1250")}
			return "done", errors.Join(e.Effect(ctx, tx, "42"), e.box.Write(ctx, tx, m), fails)
		})
		if !errors.Is(err, fails) {
			e.Fatal(err)
		}
	}
	b := &broker{}
	r := e.relay(b.publish, outbox.Options{})
	if n := e.pass(r) + e.pass(r); n != 1 {
		e.Errorf("%d messages were published, want 1", n)
	}
	d := b.all()[0]
	if d.Owner != "shop" || d.Key != "order-42" || d.ID != "refund-42" || d.Topic != "made" || d.Headers["trace"] != "1" || string(d.Body) != "1250" || d.Attempt != 1 || time.Since(d.Written) > time.Hour {
		e.Errorf("%+v", d)
	}
	e.WantOnce("42")
}

// orderFollowsCommits writes to a few keys from many transactions at once, and publishes at the same time
// from several relays whose broker fails now and then.
func orderFollowsCommits[Tx any](e *env[Tx]) {
	const keys, writers, each = 3, 4, 6
	e.Must(`CREATE TABLE counters (k VARCHAR(10) NOT NULL PRIMARY KEY, n BIGINT NOT NULL)`)
	e.Must(`CREATE TABLE causes (id VARCHAR(64) NOT NULL PRIMARY KEY, n BIGINT NOT NULL)`)
	for k := range keys {
		e.Must(`INSERT INTO counters (k, n) VALUES ($1, 0)`, fmt.Sprint("k", k))
	}
	b := &broker{}
	publish := func(ctx context.Context, d outbox.Delivery) error {
		if rand.IntN(4) == 0 {
			return errBroker
		}
		return b.publish(ctx, d)
	}
	ctx, stop := context.WithCancel(e.Ctx)
	var relays, writing sync.WaitGroup
	for range 3 {
		r := e.relay(publish, outbox.Options{Backoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond, Poll: time.Millisecond, Batch: 3, MaxAttempts: 1000})
		relays.Go(func() { _ = r.Run(ctx) })
	}
	for w := range writers {
		writing.Go(func() {
			for i := range each {
				key, id := fmt.Sprint("k", i%keys), fmt.Sprint(w, "-", i)
				// The message comes first, so only its own lock can put it into the order of the commits.
				err := e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
					if err := e.box.Write(ctx, tx, outbox.Message{Key: key, ID: id}); err != nil {
						return err
					}
					_, err := e.Exec(ctx, tx, `UPDATE counters SET n = n + 1 WHERE k = $1`, key)
					if err == nil {
						_, err = e.Exec(ctx, tx, `INSERT INTO causes (id, n) SELECT '`+id+`', n FROM counters WHERE k = $1`, key)
					}
					return err
				})
				if err != nil {
					e.Error(err)
				}
			}
		})
	}
	writing.Wait()
	e.Eventually("every message is published", func() bool {
		s, err := e.box.Stats(e.Ctx)
		e.Check(err)
		return s.Waiting == 0
	})
	stop()
	relays.Wait()
	if n := b.inOrder(e); n != writers*each {
		e.Errorf("%d messages were published, want %d", n, writers*each)
	}
	last, seen := map[string]int{}, map[string]bool{}
	for _, d := range b.all() {
		if seen[d.ID] {
			continue
		}
		seen[d.ID] = true
		n := e.Int(`SELECT n FROM causes WHERE id = $1`, d.ID)
		if n <= last[d.Key] {
			e.Errorf("key %s: the message of commit %d was published after that of commit %d", d.Key, n, last[d.Key])
		}
		last[d.Key] = n
	}
}

// failureHoldsItsKey checks that a message that fails holds up its key and no other.
func failureHoldsItsKey[Tx any](e *env[Tx]) {
	for n := range 3 {
		e.write(message("a", n), message("b", n))
	}
	b := &broker{}
	away := true
	r := e.relay(func(ctx context.Context, d outbox.Delivery) error {
		if away && string(d.Body) == "a/1" {
			return errBroker
		}
		return b.publish(ctx, d)
	}, outbox.Options{Backoff: time.Millisecond, MaxBackoff: time.Millisecond})
	e.pass(r)
	got := b.bodies()
	slices.Sort(got)
	if strings.Join(got, " ") != "a/0 b/0 b/1 b/2" {
		e.Errorf("%v were published", got)
	}
	away = false
	e.Eventually("the key goes on", func() bool { e.pass(r); return len(b.all()) == 6 })
	b.inOrder(e)
	if last := b.all()[4]; string(last.Body) != "a/1" || last.Attempt < 2 {
		e.Errorf("%s at attempt %d, want a/1 at a later one", last.Body, last.Attempt)
	}
}

// deadLetter checks that a poison message is kept, and what its key does until then.
func deadLetter[Tx any](e *env[Tx]) {
	for n := range 3 {
		e.write(message("a", n))
	}
	e.write(message("b", 0), message("c", 0), message("c", 1))
	b := &broker{}
	poison := true
	r := e.relay(func(ctx context.Context, d outbox.Delivery) error {
		switch {
		case poison && string(d.Body) == "a/1":
			return errBroker
		case string(d.Body) == "c/0":
			return outbox.Permanent(errors.New("no such topic"))
		}
		return b.publish(ctx, d)
	}, outbox.Options{Backoff: time.Millisecond, MaxBackoff: time.Millisecond, MaxAttempts: 3})
	var letters []outbox.DeadLetter
	e.Eventually("two messages are dead", func() bool {
		e.pass(r)
		var err error
		letters, err = core.First(10, e.box.DeadLetters(e.Ctx))
		e.Check(err)
		return len(letters) == 2
	})
	slices.SortFunc(letters, func(a, b outbox.DeadLetter) int { return strings.Compare(a.Key, b.Key) })
	if a, c := letters[0], letters[1]; string(a.Body) != "a/1" || a.Attempt != 3 || a.Reason != errBroker.Error() || string(c.Body) != "c/0" || c.Attempt != 1 || c.Reason != "no such topic" {
		e.Errorf("%+v", letters)
	}
	got := b.bodies()
	slices.Sort(got)
	if strings.Join(got, " ") != "a/0 b/0" || e.pass(r) != 0 {
		e.Errorf("%v were published", got)
	}
	if s, err := e.box.Stats(e.Ctx); err != nil || s.Dead != 2 || s.Waiting != 2 || s.Oldest <= 0 {
		e.Errorf("%+v, %v", s, err)
	}
	poison = false
	e.Check(e.box.Requeue(e.Ctx, letters[0], who))
	e.Check(e.box.Discard(e.Ctx, letters[1], who))
	for _, change := range []func(context.Context, outbox.DeadLetter, holdfast.Actor) error{e.box.Requeue, e.box.Discard} {
		if err := change(e.Ctx, letters[1], who); !errors.Is(err, outbox.ErrNotDead) {
			e.Errorf("a letter that is discarded: %v", err)
		}
	}
	if n := e.pass(r); n != 3 {
		e.Errorf("%d were published, want a/1, a/2 and c/1", n)
	}
	b.inOrder(e)
}

// pausedRelay pauses a relay in its publisher past its lease. Another one publishes the messages
// meanwhile; the first wakes up and publishes its own again, and nothing else.
func pausedRelay[Tx any](e *env[Tx]) {
	for n := range 4 {
		e.write(message("a", n))
	}
	b := &broker{}
	inside, wake := make(chan struct{}), make(chan struct{})
	paused := e.relay(func(_ context.Context, d outbox.Delivery) error {
		if string(d.Body) == "a/1" {
			close(inside)
			<-wake
		}
		return b.publish(e.Ctx, d)
	}, outbox.Options{Lease: short})
	var wg sync.WaitGroup
	wg.Go(func() { // a slow machine's lease may end before a/1, and more than once
		for waits := true; waits; {
			e.pass(paused)
			select {
			case <-inside:
				waits = false
			default:
			}
		}
	})
	<-inside
	before := len(b.all())
	other := e.relay(b.publish, outbox.Options{})
	e.Eventually("another relay goes on", func() bool { e.pass(other); return len(b.all()) >= before+4 })
	close(wake)
	wg.Wait()
	e.pass(other)
	if got := strings.Join(b.bodies(), " "); got != strings.Repeat("a/0 ", before)+"a/0 a/1 a/2 a/3 a/1" {
		e.Errorf("published %s", got)
	}
	b.inOrder(e)
}

// deathIsBlamed has a message that kills each relay that publishes it, without a word to the database.
// It becomes a dead letter, and the messages before it do not.
func deathIsBlamed[Tx any](e *env[Tx]) {
	for n := range 4 {
		e.write(message("a", n))
	}
	b := &broker{}
	kills := func(ctx context.Context, d outbox.Delivery) error {
		if string(d.Body) == "a/2" {
			runtime.Goexit()
		}
		return b.publish(ctx, d)
	}
	var letters []outbox.DeadLetter
	e.Eventually("the message is dead", func() bool {
		e.pass(e.relay(kills, outbox.Options{Lease: short / 3, MaxAttempts: 3}))
		var err error
		letters, err = core.First(10, e.box.DeadLetters(e.Ctx))
		e.Check(err)
		return len(letters) > 0
	})
	if len(letters) != 1 || string(letters[0].Body) != "a/2" {
		e.Fatalf("%+v", letters)
	}
	e.Check(e.box.Discard(e.Ctx, letters[0], who))
	if n := e.pass(e.relay(b.publish, outbox.Options{})); n != 1 {
		e.Errorf("%d were published after it, want 1", n)
	}
	if n := b.inOrder(e); n != 3 {
		e.Errorf("%d messages were published, want 3", n)
	}
}

// deadLettersByPage lists more dead letters than one statement reads, and goes on after each.
func deadLettersByPage[Tx any](e *env[Tx]) {
	var all []outbox.Message
	for i := range 45 {
		all = append(all, message(fmt.Sprint("k", i), 0))
	}
	e.write(all...)
	r := e.relay(func(context.Context, outbox.Delivery) error { return outbox.Permanent(errBroker) }, outbox.Options{})
	for e.pass(r); e.Int(`SELECT COUNT(*) FROM holdfast_outbox WHERE state = 3`) < len(all); e.pass(r) {
	}
	// Some of them died in one moment.
	e.Must(`UPDATE holdfast_outbox SET due_at = $1 WHERE message_key < $2`, 1_000_000, []byte("k3"))
	list := func(after outbox.DeadLetter) (keys []string) {
		for l, err := range e.box.DeadLetters(e.Ctx, outbox.ListOptions{After: after}) {
			e.Check(err)
			keys = append(keys, l.Key)
		}
		return keys
	}
	keys := list(outbox.DeadLetter{})
	if distinct := slices.Compact(slices.Sorted(slices.Values(keys))); len(keys) != len(all) || len(distinct) != len(all) {
		e.Fatalf("%d of %d: %v", len(keys), len(all), keys)
	}
	n := 0
	for l, err := range e.box.DeadLetters(e.Ctx) {
		e.Check(err)
		if n++; !slices.Equal(list(l), keys[n:]) && n < len(keys) {
			e.Errorf("after %d: %v, want %v", n, list(l), keys[n:])
		}
	}
}

// panics has a publisher that panics for one message: an attempt that failed, with its stack, and a dead
// letter at the end.
func panics[Tx any](e *env[Tx]) {
	e.write(message("a", 0), message("b", 0))
	b := &broker{}
	r := e.relay(func(ctx context.Context, d outbox.Delivery) error {
		if d.Key == "a" {
			panic(errors.New("a publisher's mistake"))
		}
		return b.publish(ctx, d)
	}, outbox.Options{Backoff: time.Millisecond, MaxBackoff: time.Millisecond, MaxAttempts: 3})
	var letters []outbox.DeadLetter
	e.Eventually("the message is dead", func() bool {
		e.pass(r)
		var err error
		letters, err = core.First(10, e.box.DeadLetters(e.Ctx))
		e.Check(err)
		return len(letters) == 1
	})
	if l := letters[0]; l.Key != "a" || l.Attempt != 3 || !strings.Contains(l.Reason, "a publisher's mistake") || !strings.Contains(l.Reason, "outboxes.panics") {
		e.Errorf("%+v", l)
	}
	if got := b.bodies(); len(got) != 1 || got[0] != "b/0" {
		e.Errorf("%v were published", got)
	}
}
