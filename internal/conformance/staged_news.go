package conformance

import (
	"context"
	"errors"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
)

// stagedNews: the provider's news is taken once, with what is booked for it, in
// every state of the operation.
func stagedNews[Tx any](e *Env[Tx]) {
	f, s := e.stagedRefunds(0)
	if _, err := s.Do(e.Ctx, stagedOp("a"), "a"); err != nil {
		e.Fatal(err)
	}
	store := e.Store(idempotency.Options{})
	key := s.ProviderKey(ref("a"), "pay")
	if !f.provider.has(key) {
		e.Errorf("the provider was not given the derived key")
	}
	boom := errors.New("boom")
	news := idempotency.News{ID: "evt_1", Kind: "refund.failed", Body: []byte{0, 1, 2, 0xff}, ProviderKey: key}
	if isNew, err := store.News(e.Ctx, news, func(ctx context.Context, tx Tx, _ idempotency.Operation) error {
		return errors.Join(boom, e.Effect(ctx, tx, "taken back"))
	}); isNew || !errors.Is(err, boom) {
		e.Errorf("a function that fails: %v, %v", isNew, err)
	}
	for n, want := range []bool{true, false, false} {
		isNew, err := store.News(e.Ctx, news, func(ctx context.Context, tx Tx, op idempotency.Operation) error {
			if op.Key != "a" || op.State != idempotency.Succeeded || len(op.News) != 1 {
				e.Errorf("the function sees %+v", op)
			}
			return e.Effect(ctx, tx, "taken back")
		})
		if isNew != want || err != nil {
			e.Errorf("delivery %d: %v, %v", n, isNew, err)
		}
	}
	e.WantOnce("taken back")
	op := e.wantState("a", idempotency.Succeeded)
	if len(op.News) != 1 || op.News[0].ID != "evt_1" || op.News[0].Kind != "refund.failed" || string(op.News[0].Body) != "\x00\x01\x02\xff" {
		e.Errorf("%+v", op.News)
	}
	news.ID, news.ProviderKey, news.Ref = "evt_2", "", ref("a")
	if isNew, err := store.News(e.Ctx, news, nil); !isNew || err != nil {
		e.Errorf("by its name: %v, %v", isNew, err)
	}
	for name, bad := range map[string]idempotency.News{
		"no ID": {Ref: ref("a")}, "no operation": {ID: "1"}, "a long kind": {ID: "1", Ref: ref("a"), Kind: strings.Repeat("k", 200)},
		"no rejection": {ID: "1", Ref: ref("a"), Settles: idempotency.SettlesRejected},
	} {
		if _, err := store.News(e.Ctx, bad, nil); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%s: %v", name, err)
		}
	}
	for _, missing := range []idempotency.News{{ID: "1", Ref: ref("b")}, {ID: "1", ProviderKey: "none"}} {
		if _, err := store.News(e.Ctx, missing, nil); !errors.Is(err, idempotency.ErrNotFound) {
			e.Errorf("no such operation: %v", err)
		}
	}
}

// stagedNewsSettles: news says what became of the call that nobody knew about,
// and the operation goes on.
func stagedNewsSettles[Tx any](e *Env[Tx]) {
	store := e.Store(idempotency.Options{})
	for _, c := range []struct {
		name            string
		news            idempotency.News
		state           idempotency.State
		payments, calls int
	}{
		{"done", idempotency.News{Settles: idempotency.SettlesDone, Result: "by webhook"}, idempotency.Succeeded, 1, 1},
		{"rejected", idempotency.News{Settles: idempotency.SettlesRejected, Rejection: &idempotency.Rejection{Code: "closed"}}, idempotency.Rejected, 1, 1},
		{"not done", idempotency.News{Settles: idempotency.SettlesNotDone}, idempotency.Succeeded, 1, 2},
	} {
		f, s := parkedAt(e, c.name)
		f.call = nil
		c.news.ID, c.news.ProviderKey = "evt", s.ProviderKey(ref(c.name), "pay")
		if isNew, err := store.News(e.Ctx, c.news, nil); !isNew || err != nil {
			e.Errorf("%s: %v, %v", c.name, isNew, err)
		}
		e.wantState(c.name, idempotency.Pending)
		if done, err := s.Complete(e.Ctx, 0); err != nil || done.Found != 1 {
			e.Errorf("%s: %+v, %v", c.name, done, err)
		}
		e.wantState(c.name, c.state)
		f.provider.want(e, c.payments, c.calls)
		e.WantOnce(c.name)
		// What is known does not change.
		late := idempotency.News{ID: "late", Ref: ref(c.name), Step: "pay", Settles: idempotency.SettlesNotDone}
		if _, err := store.News(e.Ctx, late, nil); !errors.Is(err, idempotency.ErrState) {
			e.Errorf("%s: news against the known answer: %v", c.name, err)
		}
		late.Step = "no such step"
		if _, err := store.News(e.Ctx, late, nil); !errors.Is(err, idempotency.ErrState) {
			e.Errorf("%s: news of another step: %v", c.name, err)
		}
		if n := len(e.show(c.name).News); n != 1 {
			e.Errorf("%s: %d news, the refused ones must leave nothing", c.name, n)
		}
	}
	// News that comes while the call is being made is its answer.
	p := newProvider()
	_, resume := paused(e, idempotency.Outside[string]{}, func(key string) (string, error) {
		p.pay(key)
		return "by the call", nil
	})
	for _, st := range e.show("a").Steps {
		if st.Name != "pay" {
			continue
		}
		if _, err := store.News(e.Ctx, idempotency.News{ID: "1", ProviderKey: st.ProviderKey, Settles: idempotency.SettlesNotDone}, nil); !errors.Is(err, idempotency.ErrState) {
			e.Errorf("not done, while a worker is at it: %v", err)
		}
		if _, err := store.News(e.Ctx, idempotency.News{ID: "1", ProviderKey: st.ProviderKey, Settles: idempotency.SettlesDone, Result: "by webhook"}, nil); err != nil {
			e.Error(err)
		}
	}
	if err := resume(); err != nil {
		e.Error(err)
	}
	e.wantRefunded("a")
}

// stagedNewsFirst: news that comes while the call is made, before its worker or
// whoever takes over knows better, is its answer: nothing is parked at a step
// whose answer is known, for nobody could say more about it.
func stagedNewsFirst[Tx any](e *Env[Tx]) {
	store := e.Store(idempotency.Options{})
	done := func(key string) idempotency.News {
		return idempotency.News{ID: "1", Ref: ref(key), Step: "pay", Settles: idempotency.SettlesDone, Result: "by webhook"}
	}
	// The worker has no answer of its own.
	f, s := e.stagedRefunds(0)
	f.call = func(ctx context.Context, key string) (string, error) {
		f.provider.pay(key)
		if _, err := store.News(ctx, done("a"), nil); err != nil {
			e.Error(err)
		}
		return "", errTimeout
	}
	if r, err := s.Do(e.Ctx, stagedOp("a"), "a"); err != nil || r.Value != "by webhook" {
		e.Errorf("news, then no answer: %v, %v", r, err)
	}
	f.provider.want(e, 1, 1)
	e.WantOnce("a")
	// The worker dies, the news come before its lease ends.
	e.Must(`DELETE FROM holdfast_news`)
	e.Must(`DELETE FROM holdfast_steps`)
	e.Must(`DELETE FROM holdfast_staged`)
	e.Must(`DELETE FROM effects`)
	p := newProvider()
	_, resume := paused(e, idempotency.Outside[string]{}, func(key string) (string, error) { return p.pay(key), nil })
	if _, err := store.News(e.Ctx, done("a"), nil); err != nil {
		e.Error(err)
	}
	other := &refund[Tx]{e: e, provider: p}
	if r, err := e.staged(other.stages(), idempotency.Options{}).Do(e.Ctx, stagedOp("a"), "a"); err != nil || r.Value != "by webhook" {
		e.Errorf("news, then the lease's end: %v, %v", r, err)
	}
	if err := resume(); !errors.Is(err, idempotency.ErrStale) {
		e.Errorf("the stale worker: %v", err)
	}
	e.wantRefunded("a")
	// One that was parked nevertheless, by a program of before, goes on when it is said again.
	parked, s := parkedAt(e, "b")
	parked.call = nil
	e.Must(`UPDATE holdfast_steps SET state = 2, result = (SELECT result FROM (SELECT result FROM holdfast_steps WHERE name = 'pay' AND result IS NOT NULL) x)
WHERE name = 'pay' AND state = 1`)
	if err := store.Operators().Resolve(e.Ctx, ref("b"), idempotency.Resolution{Step: idempotency.SettlesDone, StepResult: "by webhook"}, who()); err != nil {
		e.Error(err)
	}
	if r, err := s.Do(e.Ctx, stagedOp("b"), "b"); err != nil || r.Value != "by webhook" {
		e.Errorf("parked at a known step: %v, %v", r, err)
	}
}
