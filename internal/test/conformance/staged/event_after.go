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
					want := event.against == d.name && (call != "not done" || event.how == staged.StepDone)
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
	s := e.undecided(key, call)
	if err := ops.Resolve(e.Ctx, ref(key), r, who()); err != nil {
		e.Fatalf("%s: %v", key, err)
	}
	return s
}

// undecided returns the runner of an operation that is parked after its only attempt.
func (e *env[Tx]) undecided(key, call string) *staged.Runner[string, string, Tx] {
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

// stagedEventOfAnotherStep contradicts a call, and then tells the answer of a later one. It is stored, and the
// operation goes on only once an operator has decided.
func stagedEventOfAnotherStep[Tx any](e *env[Tx]) {
	store, ops := e.Store(idempotency.Options{}), operators.New(e.Store(idempotency.Options{}))
	pay, begun := "", 0
	s := e.staged(staged.Workflow[string, string, Tx]{
		Name: "refund", Backoff: time.Millisecond, MaxBackoff: time.Millisecond,
		Run: func(ctx context.Context, r *staged.Run[Tx], key string) (string, error) {
			if _, err := staged.Call(ctx, r, staged.ExternalCall[string]{Step: "pay"}, func(context.Context, string) (string, error) { return "paid", nil }); err != nil {
				return "", err
			}
			for time.Since(stepOf(e.show(key), "pay").Begun) < 5*time.Millisecond { // a later step has a later time
				time.Sleep(time.Millisecond)
			}
			return staged.Call(ctx, r, staged.ExternalCall[string]{Step: "ship"}, func(context.Context, string) (string, error) {
				begun++
				if _, err := staged.HandleEvent(e.Ctx, store, said("evt_1", pay, staged.StepRejected), nil); err != nil {
					e.Error(err)
				}
				return "", errTimeout
			})
		},
	}, idempotency.Options{})
	for _, how := range []staged.StepOutcome{staged.StepDone, staged.StepRejected, staged.StepNotDone} {
		key := "then " + outcomes[how]
		pay, begun = s.ProviderKey(ref(key), "pay"), 0
		if _, err := s.Do(e.Ctx, stagedOp(key), key); err == nil {
			e.Errorf("%s: done", key)
		}
		e.hears(store, said("evt_2", s.ProviderKey(ref(key), "ship"), how), func(op staged.Operation) bool { return op.Contradicted })
		if done, err := s.Complete(e.Ctx); err != nil || done.Found != 0 || begun != 1 {
			e.Errorf("%s: it goes on without a decision: %+v, %v, %d calls", key, done, err, begun)
		}
		if op := e.wantState(key, idempotency.StateUnknown); !op.Contradicted || !strings.Contains(op.Reason, "contradicts itself") {
			e.Errorf("%s: %+v", key, op)
		}
		if err := ops.Resolve(e.Ctx, ref(key), operators.Resolution{Resume: true}, who()); err != nil {
			e.Error(err)
		}
		if done, err := s.Complete(e.Ctx); err != nil || done.Found != 1 {
			e.Errorf("%s, and it was decided: %+v, %v", key, done, err)
		}
	}
}

// eventEndsTheTransaction uses a function of HandleEvent that ends its transaction itself. What it did before
// is not reported as handled, and is not done again: somebody must look.
func eventEndsTheTransaction[Tx any](e *env[Tx]) {
	_, s := e.stagedRefunds(0)
	if _, err := s.Do(e.Ctx, stagedOp("a"), "a"); err != nil {
		e.Fatal(err)
	}
	eachEnd(e, eventEnds[Tx])
}

func eventEnds[Tx any](e *env[Tx], how string, end func(ctx context.Context, tx Tx), fails error) {
	store, event, ran := e.Store(idempotency.Options{}), staged.ProviderEvent{ID: how, Ref: ref("a")}, 0
	book := func(ctx context.Context, tx Tx, _ staged.Operation) error {
		if err := e.Effect(ctx, tx, how); err != nil {
			return err
		}
		if ran++; ran > 1 {
			return nil
		}
		end(ctx, tx)
		return fails
	}
	_, first := staged.HandleEvent(e.Ctx, store, event, book)
	stood := e.Effects(how) == 1
	isNew, second := staged.HandleEvent(e.Ctx, store, event, book)
	e.WantOnce(how)
	if stood && (isNew || ran != 1) {
		e.Errorf("it %s: %v, then new %v, %v, after %d runs", how, first, isNew, second, ran)
	}
	if stood && fails != nil && !errors.Is(second, staged.ErrState) {
		e.Errorf("it %s: a part of it was done, and then it is reported as handled: %v, then %v", how, first, second)
	}
	if errors.Is(second, staged.ErrState) { // somebody has looked
		for range 2 {
			if isNew, err := staged.HandleEvent(e.Ctx, store, event, nil); isNew || err != nil {
				e.Errorf("it %s, and was mended by hand: %v, %v", how, isNew, err)
			}
		}
		if isNew, err := staged.HandleEvent(e.Ctx, store, event, book); isNew || err != nil || ran != 1 {
			e.Errorf("it %s, and was mended by hand: %v, %v", how, isNew, err)
		}
	}
}

// stagedAnsweredMeanwhile lets an event answer the call of the last attempt before its worker gives up, and that of an
// operation whose attempts are used up. What is known goes on.
func stagedAnsweredMeanwhile[Tx any](e *env[Tx]) {
	store := e.Store(idempotency.Options{})
	for mode, outside := range map[string]staged.ExternalCall[string]{
		"park": {}, "take over": {OnLeaseEnd: staged.TakeOver}, "reconcile": {Reconcile: func(context.Context, string) (string, error) { return "", errTimeout }},
	} {
		f := &refund[Tx]{e: e, provider: newProvider(), outside: outside}
		stages := f.stages()
		stages.MaxAttempts = 1
		s := e.staged(stages, idempotency.Options{})
		key := mode
		f.call = func(_ context.Context, providerKey string) (string, error) {
			f.provider.pay(providerKey)
			if _, err := staged.HandleEvent(e.Ctx, store, said("evt_1", providerKey, staged.StepDone), nil); err != nil {
				e.Error(err)
			}
			return "", errTimeout
		}
		_, _ = s.Do(e.Ctx, stagedOp(key), key)
		e.Eventually(key+" ends", func() bool {
			_, err := s.Complete(e.Ctx)
			return err != nil || e.show(key).State != idempotency.StateWaiting
		})
		e.wantState(key, idempotency.StateSucceeded)
		e.wantRefunded(key)
		f.provider.want(e, 1, 1)
	}
	s := e.undecided("used up", "not done")
	e.hears(store, said("evt_1", s.ProviderKey(ref("used up"), "pay"), staged.StepDone), func(op staged.Operation) bool { return op.State == idempotency.StateWaiting })
	if done, err := s.Complete(e.Ctx); err != nil || done.Succeeded != 1 {
		e.Errorf("its attempts were used up, and then it was done: %+v, %v", done, err)
	}
}

// stagedNotDoneEndsTheAttempt runs a workflow with a second provider for calls that the first one has not done.
// NotDone is no answer that stays, so nothing may follow it in the same attempt.
func stagedNotDoneEndsTheAttempt[Tx any](e *env[Tx]) {
	first, second, attempts := newProvider(), newProvider(), 0
	s := e.staged(staged.Workflow[string, string, Tx]{
		Name: "refund", Backoff: time.Millisecond, MaxBackoff: time.Millisecond,
		Run: func(ctx context.Context, r *staged.Run[Tx], key string) (string, error) {
			attempts++
			paid, err := staged.Call(ctx, r, staged.ExternalCall[string]{Step: "first"}, func(_ context.Context, key string) (string, error) {
				if attempts == 1 {
					return "", staged.NotDone(errTimeout)
				}
				return first.pay(key), nil
			})
			if errors.Is(err, errTimeout) {
				paid, err = staged.Call(ctx, r, staged.ExternalCall[string]{Step: "second"}, func(_ context.Context, key string) (string, error) { return second.pay(key), nil })
			}
			if err != nil {
				return "", err
			}
			_, err = staged.Local(ctx, r, "close", func(ctx context.Context, tx Tx) (bool, error) {
				if attempts == 1 {
					return false, errors.New("close failed")
				}
				return true, e.Effect(ctx, tx, key)
			})
			return paid, err
		},
	}, idempotency.Options{})
	_, _ = s.Do(e.Ctx, stagedOp("a"), "a")
	e.Eventually("it ends", func() bool {
		_, err := s.Do(e.Ctx, stagedOp("a"), "a")
		return err == nil
	})
	a, _ := first.counts()
	b, _ := second.counts()
	if a+b != 1 {
		e.Errorf("%d payments at the first provider, %d at the second", a, b)
	}
}
