package staged

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
)

// stagedEventAfterDecision lets an operator end an operation whose call has no answer, and then the answer
// come by event. It is stored with its step, fn books it, and the operation shows whether the operator was
// wrong. It keeps its state and its result.
func stagedEventAfterDecision[Tx any](e *env[Tx]) {
	store := e.Store(idempotency.Options{})
	ops := operators.New(store)
	decisions := []struct {
		name      string
		r         operators.Resolution
		ends, dry idempotency.State // dry: once it is erased
	}{
		{"succeeded", operators.Resolution{Succeed: true, Result: "it is"}, idempotency.StateSucceeded, idempotency.StateSucceededExpired},
		{"rejected", operators.Resolution{Reject: true, Rejection: declined}, idempotency.StateRejected, idempotency.StateRejectedExpired},
	}
	events := []struct {
		how     staged.StepOutcome
		step    staged.StepState
		against string // the decision that it contradicts
	}{
		{staged.StepDone, staged.Succeeded, "rejected"},
		{staged.StepRejected, staged.Rejected, "succeeded"},
		{staged.StepNotDone, staged.NotBegun, "succeeded"},
	}
	for _, call := range []string{"no answer", "not done", "accepted"} {
		for _, d := range decisions {
			for _, event := range events {
				for _, erased := range []bool{false, true} {
					key := fmt.Sprint(call, ", ", d.name, ", then ", outcomes[event.how], erased)
					s := e.decided(ops, key, call, d.r)
					ends := d.ends
					if erased {
						ends = d.dry
						if err := ops.Erase(e.Ctx, ref(key), who()); err != nil {
							e.Fatal(err)
						}
					}
					want := event.against == d.name
					e.hears(store, said("evt_1", s.ProviderKey(ref(key), "pay"), event.how), func(op staged.Operation) bool {
						return op.Contradicted == want && op.State == ends
					})
					op := e.wantState(key, ends)
					if st := stepOf(op, "pay"); st.State != event.step {
						e.Errorf("%s: the step is %s, not %s", key, st.State, event.step)
					}
					if op.Contradicted != want || want && (!strings.Contains(op.Reason, d.name) || !strings.Contains(op.Reason, outcomes[event.how])) || erased && strings.Contains(op.Reason, declined.Code) {
						e.Errorf("%s: contradicted %v: %s", key, op.Contradicted, op.Reason)
					}
				}
			}
		}
	}
	// What an operator knew to be done can be taken back; what nobody says was done cannot.
	for _, d := range decisions {
		s := e.decided(ops, "back "+d.name, "no answer", d.r)
		event := staged.ProviderEvent{ID: "evt_1", ProviderKey: s.ProviderKey(ref("back "+d.name), "pay"), Outcome: staged.StepReversed}
		if d.name == "succeeded" {
			e.hears(store, event, func(op staged.Operation) bool { return !op.Reversed.IsZero() })
		} else if _, err := staged.HandleEvent(e.Ctx, store, event, nil); !errors.Is(err, staged.ErrState) {
			e.Errorf("it was reversed without having been done: %v", err)
		}
	}
}

// decided returns the runner of an operation whose call had no certain answer and that an operator has ended.
func (e *env[Tx]) decided(ops *operators.Operators[Tx], key, call string, r operators.Resolution) *staged.Runner[string, string, Tx] {
	e.Helper()
	f := &refund[Tx]{e: e, provider: newProvider()}
	stages := f.stages()
	stages.MaxAttempts = 1
	s := e.staged(stages, idempotency.Options{})
	f.call = func(context.Context, string) (string, error) {
		switch call {
		case "not done":
			return "", staged.NotDone(errTimeout)
		case "accepted":
			return "", staged.Accepted("", time.Millisecond)
		}
		return "", errTimeout
	}
	if _, err := s.Do(e.Ctx, stagedOp(key), key); err == nil {
		e.Fatalf("%s: it has succeeded", key)
	}
	for e.show(key).State != idempotency.StateUnknown {
		if _, err := s.Complete(e.Ctx); err != nil {
			e.Fatal(err)
		}
	}
	if err := ops.Resolve(e.Ctx, ref(key), r, who()); err != nil {
		e.Fatalf("%s: %v", key, err)
	}
	return s
}

// hears handles an event that must be new, and whose function must see what want says.
func (e *env[Tx]) hears(store *idempotency.Store[Tx], event staged.ProviderEvent, want func(op staged.Operation) bool) {
	e.Helper()
	ran, right := false, false
	isNew, err := staged.HandleEvent(e.Ctx, store, event, func(_ context.Context, _ Tx, op staged.Operation) error {
		ran, right = true, want(op)
		return nil
	})
	if err != nil || !isNew || !ran || !right {
		e.Errorf("event %s: new %v, %v, its function ran: %v, saw what it should: %v", event.ProviderKey, isNew, err, ran, right)
	}
}
