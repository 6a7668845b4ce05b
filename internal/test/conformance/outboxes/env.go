// Package outboxes contains the suite of the outbox and its relays.
package outboxes

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency/outbox"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// env is one test, with the helpers of this suite.
type env[Tx any] struct {
	*conformance.Env[Tx]
	box *outbox.Outbox[Tx]
}

const name = "refunds"

var who = holdfast.Actor{By: "olga", Reason: "ticket 12"}

// Suite runs the outbox's cases through one handle.
func Suite[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Helper()
	for what, f := range map[string]func(*env[Tx]){
		"WrittenWithItsCause": writtenWithItsCause[Tx], "OrderFollowsCommits": orderFollowsCommits[Tx], "FailureHoldsItsKey": failureHoldsItsKey[Tx],
		"DeadLetter": deadLetter[Tx], "DeadLettersByPage": deadLettersByPage[Tx], "Panic": panics[Tx], "PausedRelay": pausedRelay[Tx], "DeathIsBlamedOnItsMessage": deathIsBlamed[Tx], "Stopped": stopped[Tx],
		"Cleared": cleared[Tx], "OwnersAndKeys": ownersAndKeys[Tx], "Input": input[Tx], "Run": runs[Tx],
		"HeldUpKeyHidesNone": heldUpKeyHidesNone[Tx], "PutOffMessage": putOffMessage[Tx],
		"Failing": failing[Tx], "FailingBetween": failingBetween[Tx],
		"StoppedBefore": stoppedBefore[Tx], "ManyKeys": manyKeys[Tx], "RunRests": runRests[Tx],
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, h, func(e *conformance.Env[Tx]) { f(&env[Tx]{e, open(e, name)}) })
		})
	}
}

func open[Tx any](e *conformance.Env[Tx], name string) *outbox.Outbox[Tx] {
	e.Helper()
	box, err := outbox.New(e.Ctx, e.DB, name)
	e.Check(err)
	return box
}

func message(key string, n int) outbox.Message {
	return outbox.Message{Key: key, Topic: "made", Body: []byte(fmt.Sprint(key, "/", n))}
}

// write commits messages, each in its own transaction.
func (e *env[Tx]) write(messages ...outbox.Message) {
	e.Helper()
	for _, m := range messages {
		e.Check(e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error { return e.box.Write(ctx, tx, m) }))
	}
}

// relay makes a relay as another process has it: with nothing in common but the database.
func (e *env[Tx]) relay(publish outbox.Publish, o outbox.Options) *outbox.Relay[Tx] {
	e.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	r, err := outbox.NewRelay(e.box, publish, o)
	e.Check(err)
	return r
}

// pass runs one pass and returns how many messages were published.
func (e *env[Tx]) pass(r *outbox.Relay[Tx]) int {
	e.Helper()
	n, err := r.Pass(e.Ctx)
	e.Check(err)
	return n
}

// broker keeps what was published, in order.
type broker struct {
	mu  sync.Mutex
	log []outbox.Delivery
}

func (b *broker) publish(_ context.Context, d outbox.Delivery) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, d)
	return nil
}

func (b *broker) all() []outbox.Delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]outbox.Delivery(nil), b.log...)
}

// bodies returns the bodies in the order of publication.
func (b *broker) bodies() (list []string) {
	for _, d := range b.all() {
		list = append(list, string(d.Body))
	}
	return list
}

// inOrder fails unless each key's messages were first published in the order of their seq, and
// returns how many there are. Repetitions do not count.
func (b *broker) inOrder(tb testing.TB) int {
	tb.Helper()
	type key struct{ owner, key string }
	seen, last := map[string]bool{}, map[key]int64{}
	for _, d := range b.all() {
		k := key{d.Owner, d.Key}
		if seen[d.ID] {
			continue
		}
		if seen[d.ID] = true; d.Seq <= last[k] {
			tb.Errorf("key %q: %s was published after a later message", d.Key, d.Body)
		}
		last[k] = d.Seq
	}
	return len(seen)
}

const short = 300 * time.Millisecond // a lease that tests let end
