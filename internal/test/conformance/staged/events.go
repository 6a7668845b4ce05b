package staged

import (
	"context"
	"errors"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
)

// stagedEvents checks that a provider event is applied once, together with its bookings, in
// every state of the operation.
func stagedEvents[Tx any](e *env[Tx]) {
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
	event := staged.ProviderEvent{ID: "evt_1", Kind: "refund.failed", Body: []byte{0, 1, 2, 0xff}, ProviderKey: key}
	if isNew, err := staged.HandleEvent(e.Ctx, store, event, func(ctx context.Context, tx Tx, _ staged.Operation) error {
		return errors.Join(boom, e.Effect(ctx, tx, "taken back"))
	}); isNew || !errors.Is(err, boom) {
		e.Errorf("a function that fails: %v, %v", isNew, err)
	}
	for n, want := range []bool{true, false, false} {
		isNew, err := staged.HandleEvent(e.Ctx, store, event, func(ctx context.Context, tx Tx, op staged.Operation) error {
			if op.Key != "a" || op.State != idempotency.StateSucceeded || len(op.Events) != 1 {
				e.Errorf("the function sees %+v", op)
			}
			return e.Effect(ctx, tx, "taken back")
		})
		if isNew != want || err != nil {
			e.Errorf("delivery %d: %v, %v", n, isNew, err)
		}
	}
	e.WantOnce("taken back")
	op := e.wantState("a", idempotency.StateSucceeded)
	if len(op.Events) != 1 || op.Events[0].ID != "evt_1" || op.Events[0].Kind != "refund.failed" || string(op.Events[0].Body) != "\x00\x01\x02\xff" {
		e.Errorf("%+v", op.Events)
	}
	event.ID, event.ProviderKey, event.Ref = "evt_2", "", ref("a")
	if isNew, err := staged.HandleEvent(e.Ctx, store, event, nil); !isNew || err != nil {
		e.Errorf("by its name: %v, %v", isNew, err)
	}
	for name, bad := range map[string]staged.ProviderEvent{
		"no ID": {Ref: ref("a")}, "no operation": {ID: "1"}, "a long kind": {ID: "1", Ref: ref("a"), Kind: strings.Repeat("k", 200)},
		"no rejection": {ID: "1", Ref: ref("a"), Outcome: staged.StepRejected},
	} {
		if _, err := staged.HandleEvent(e.Ctx, store, bad, nil); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%s: %v", name, err)
		}
	}
	for _, missing := range []staged.ProviderEvent{{ID: "1", Ref: ref("b")}, {ID: "1", ProviderKey: "none"}} {
		if _, err := staged.HandleEvent(e.Ctx, store, missing, nil); !errors.Is(err, staged.ErrNotFound) {
			e.Errorf("no such operation: %v", err)
		}
	}
}

// stagedEventsSettles checks that an event supplies the unknown outcome of a call, and that the
// operation then continues.
func stagedEventsSettles[Tx any](e *env[Tx]) {
	store := e.Store(idempotency.Options{})
	for _, c := range []struct {
		name            string
		event           staged.ProviderEvent
		state           idempotency.State
		payments, calls int
	}{
		{"done", staged.ProviderEvent{Outcome: staged.StepDone, Result: "by webhook"}, idempotency.StateSucceeded, 1, 1},
		{"rejected", staged.ProviderEvent{Outcome: staged.StepRejected, Rejection: &idempotency.Rejection{Code: "closed"}}, idempotency.StateRejected, 1, 1},
		{"not done", staged.ProviderEvent{Outcome: staged.StepNotDone}, idempotency.StateSucceeded, 1, 2},
	} {
		f, s := parkedAt(e, c.name)
		f.call = nil
		c.event.ID, c.event.ProviderKey = "evt", s.ProviderKey(ref(c.name), "pay")
		if isNew, err := staged.HandleEvent(e.Ctx, store, c.event, nil); !isNew || err != nil {
			e.Errorf("%s: %v, %v", c.name, isNew, err)
		}
		e.wantState(c.name, idempotency.StateWaiting)
		if done, err := s.Complete(e.Ctx); err != nil || done.Found != 1 {
			e.Errorf("%s: %+v, %v", c.name, done, err)
		}
		e.wantState(c.name, c.state)
		f.provider.want(e, c.payments, c.calls)
		e.WantOnce(c.name)
		// "Not done" after a refusal is refused itself, as is an event of a step that has not begun.
		late := staged.ProviderEvent{ID: "late", Ref: ref(c.name), Step: "pay", Outcome: staged.StepNotDone}
		if c.state == idempotency.StateRejected {
			if _, err := staged.HandleEvent(e.Ctx, store, late, nil); !errors.Is(err, staged.ErrState) {
				e.Errorf("%s: not done: %v", c.name, err)
			}
		}
		late.Step = "no such step"
		if _, err := staged.HandleEvent(e.Ctx, store, late, nil); !errors.Is(err, staged.ErrState) {
			e.Errorf("%s: events of another step: %v", c.name, err)
		}
		if n := len(e.show(c.name).Events); n != 1 {
			e.Errorf("%s: %d events, the refused ones must leave nothing", c.name, n)
		}
	}
	// An event that arrives during the call is the call's answer.
	p := newProvider()
	_, resume := paused(e, staged.ExternalCall[string]{}, func(key string) (string, error) {
		p.pay(key)
		return "by the call", nil
	})
	for _, st := range e.show("a").Steps {
		if st.Name != "pay" {
			continue
		}
		if _, err := staged.HandleEvent(e.Ctx, store, staged.ProviderEvent{ID: "1", ProviderKey: st.ProviderKey, Outcome: staged.StepNotDone}, nil); !errors.Is(err, staged.ErrState) {
			e.Errorf("not done, while a worker is at it: %v", err)
		}
		if _, err := staged.HandleEvent(e.Ctx, store, staged.ProviderEvent{ID: "1", ProviderKey: st.ProviderKey, Outcome: staged.StepDone, Result: "by webhook"}, nil); err != nil {
			e.Error(err)
		}
	}
	if err := resume(); err != nil {
		e.Error(err)
	}
	e.wantRefunded("a")
}

// stagedEventsFirst delivers an event during the call, before its worker or the next worker
// knows the outcome. The event is the answer. A step with a known answer must not be parked,
// because nothing could supply a better answer later.
func stagedEventsFirst[Tx any](e *env[Tx]) {
	store := e.Store(idempotency.Options{})
	done := func(key string) staged.ProviderEvent {
		return staged.ProviderEvent{ID: "1", Ref: ref(key), Step: "pay", Outcome: staged.StepDone, Result: "by webhook"}
	}
	// The worker has no answer.
	f, s := e.stagedRefunds(0)
	f.call = func(ctx context.Context, key string) (string, error) {
		f.provider.pay(key)
		if _, err := staged.HandleEvent(ctx, store, done("a"), nil); err != nil {
			e.Error(err)
		}
		return "", errTimeout
	}
	if r, err := s.Do(e.Ctx, stagedOp("a"), "a"); err != nil || r.Value != "by webhook" {
		e.Errorf("events, then no answer: %v, %v", r, err)
	}
	f.provider.want(e, 1, 1)
	e.WantOnce("a")
	// The worker dies, and the event arrives before its lease ends.
	e.Must(`DELETE FROM holdfast_provider_events`)
	e.Must(`DELETE FROM holdfast_steps`)
	e.Must(`DELETE FROM holdfast_staged`)
	e.Must(`DELETE FROM effects`)
	p := newProvider()
	end, resume := paused(e, staged.ExternalCall[string]{}, func(key string) (string, error) { return p.pay(key), nil })
	if _, err := staged.HandleEvent(e.Ctx, store, done("a"), nil); err != nil {
		e.Error(err)
	}
	end()
	other := &refund[Tx]{e: e, provider: p}
	if r, err := e.staged(other.stages(), idempotency.Options{}).Do(e.Ctx, stagedOp("a"), "a"); err != nil || r.Value != "by webhook" {
		e.Errorf("events, then the lease's end: %v, %v", r, err)
	}
	if err := resume(); !errors.Is(err, staged.ErrStale) {
		e.Errorf("the stale worker: %v", err)
	}
	e.wantRefunded("a")
	// An operation that an older program parked anyway continues when the event is delivered
	// again.
	parked, s := parkedAt(e, "b")
	parked.call = nil
	e.Must(`UPDATE holdfast_steps SET state = 2, result = (SELECT result FROM (SELECT result FROM holdfast_steps WHERE name = 'pay' AND result IS NOT NULL) x)
WHERE name = 'pay' AND state = 1`)
	if err := operators.New(store).Resolve(e.Ctx, ref("b"), operators.Resolution{Step: staged.StepDone, StepResult: "by webhook"}, who()); err != nil {
		e.Error(err)
	}
	if r, err := s.Do(e.Ctx, stagedOp("b"), "b"); err != nil || r.Value != "by webhook" {
		e.Errorf("parked at a known step: %v, %v", r, err)
	}
}
