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

var declined = &idempotency.Rejection{Code: "declined", Message: "by the bank"}

// said returns an event with an outcome.
func said(id, providerKey string, how staged.StepOutcome) staged.ProviderEvent {
	event := staged.ProviderEvent{ID: id, ProviderKey: providerKey, Outcome: how}
	switch how {
	case staged.StepDone:
		event.Result = "by webhook"
	case staged.StepRejected:
		event.Rejection = declined
	}
	return event
}

// answers returns what the function of the call returns for an outcome.
func answers(how staged.StepOutcome) (string, error) {
	switch how {
	case staged.StepDone:
		return "by the call", nil
	case staged.StepRejected:
		return "", declined
	}
	return "", errTimeout
}

var outcomes = map[staged.StepOutcome]string{staged.StepDone: "done", staged.StepRejected: "rejected", staged.StepNotDone: "not done"}

// stagedContradicts gives two answers that exclude each other, in each order and at each time: an event
// during the call and then its answer; the answer and then an event; two events, after a call without an
// answer. The operation is parked with both, and its reference finds it.
func stagedContradicts[Tx any](e *env[Tx]) {
	store := e.Store(idempotency.Options{})
	handle := func(event staged.ProviderEvent) {
		e.Helper()
		if isNew, err := staged.HandleEvent(e.Ctx, store, event, nil); err != nil || !isNew {
			e.Errorf("event %s: %v, %v", event.ID, isNew, err)
		}
	}
	orders := [][2]staged.StepOutcome{{staged.StepRejected, staged.StepDone}, {staged.StepDone, staged.StepRejected}, {staged.StepDone, staged.StepNotDone}}
	for _, order := range orders {
		for _, when := range []string{"during the call", "after its answer", "two events"} {
			if order[1] == staged.StepNotDone && when == "during the call" {
				continue // a call that did nothing does not contradict an event about an earlier one
			}
			key := fmt.Sprintf("%s: %s, then %s", when, outcomes[order[0]], outcomes[order[1]])
			f, s := e.stagedRefunds(0)
			f.outside.Provider = "bank"
			providerKey := s.ProviderKey(ref(key), "pay")
			f.call = func(ctx context.Context, providerKey string) (string, error) {
				f.provider.pay(providerKey)
				staged.SetReference(ctx, "re_"+key)
				switch when {
				case "during the call":
					handle(said("evt_1", providerKey, order[0]))
					return answers(order[1])
				case "after its answer":
					v, err := answers(order[0])
					return v, err
				}
				return answers(staged.NoOutcome)
			}
			f.after = func(int) error { return errTimeout } // the operation goes on later
			_, err := s.Do(e.Ctx, stagedOp(key), key)
			switch when {
			case "during the call":
				var parked *staged.ParkedError
				if !errors.As(err, &parked) || parked.Step != "pay" {
					e.Errorf("%s: %v", key, err)
				}
			case "two events":
				handle(said("evt_1", providerKey, order[0]))
			}
			if order[0] == staged.StepRejected && when == "after its answer" {
				e.wantContradicted(s, key, idempotency.StateRejected, order) // it has ended
				continue
			}
			if when != "during the call" {
				handle(said("evt_2", providerKey, order[1]))
			}
			e.wantContradicted(s, key, idempotency.StateUnknown, order)
			// One more event is one more fact, and decides nothing.
			handle(said("evt_3", providerKey, staged.StepDone))
			byReference := said("evt_4", "", staged.StepRejected)
			byReference.Provider, byReference.Reference = "bank", "re_"+key
			handle(byReference)
			e.wantContradicted(s, key, idempotency.StateUnknown, order)
			if done, err := s.Complete(e.Ctx); err != nil || done.Found != 0 {
				e.Errorf("%s: the completer: %+v, %v", key, done, err)
			}
			f.provider.want(e, 1, 1)
			e.WantOnce(key)
		}
	}
}

// wantContradicted looks for an operation with two answers. One that has ended gets the second by an event.
func (e *env[Tx]) wantContradicted(s *staged.Runner[string, string, Tx], key string, want idempotency.State, order [2]staged.StepOutcome) {
	e.Helper()
	if want != idempotency.StateUnknown {
		ran := false
		if isNew, err := staged.HandleEvent(e.Ctx, e.Store(idempotency.Options{}), said("evt_2", s.ProviderKey(ref(key), "pay"), order[1]), func(_ context.Context, _ Tx, op staged.Operation) error {
			ran = op.Contradicted && op.State == want
			return nil
		}); err != nil || !isNew || !ran {
			e.Errorf("%s: the event after the end: %v, %v, %v", key, isNew, err, ran)
		}
	}
	op := e.wantState(key, want)
	if !op.Contradicted || op.Events == nil {
		e.Errorf("%s: %+v", key, op)
	}
	for _, word := range []string{"contradicts itself", outcomes[order[0]], outcomes[order[1]]} {
		if !strings.Contains(op.Reason, word) {
			e.Errorf("%s: the reason lacks %q: %s", key, word, op.Reason)
		}
	}
	if st := stepOf(op, "pay"); st.Reference != "re_"+key || st.Provider != "bank" {
		e.Errorf("%s: the reference is lost: %+v", key, st)
	}
}

// stagedContradictsEnded lets an event contradict an operation that has ended. It keeps its result, and shows both.
func stagedContradictsEnded[Tx any](e *env[Tx]) {
	store := e.Store(idempotency.Options{})
	f, s := e.stagedRefunds(0)
	f.outside.Provider = "bank"
	f.call = func(ctx context.Context, key string) (string, error) {
		staged.SetReference(ctx, "re_a")
		return f.provider.pay(key), nil
	}
	if _, err := s.Do(e.Ctx, stagedOp("a"), "a"); err != nil {
		e.Fatal(err)
	}
	e.wantContradicted(s, "a", idempotency.StateSucceeded, [2]staged.StepOutcome{staged.StepDone, staged.StepRejected})
	e.wantRefunded("a")
	if r, err := s.Do(e.Ctx, stagedOp("a"), "a"); err != nil || r.Outcome != idempotency.Replayed {
		e.Errorf("%v, %v", r, err)
	}
	// Erased, it shows no more than that.
	ops := operators.New(store)
	if err := ops.Erase(e.Ctx, ref("a"), who()); err != nil {
		e.Error(err)
	}
	if _, err := staged.HandleEvent(e.Ctx, store, said("evt_5", s.ProviderKey(ref("a"), "pay"), staged.StepRejected), nil); err != nil {
		e.Error(err)
	}
	if op := e.wantState("a", idempotency.StateSucceededExpired); !op.Contradicted || strings.Contains(op.Reason, declined.Code) {
		e.Errorf("%+v", op)
	}
}

// stagedContradictsDecided lets an operator decide, in each way. If a later step has used the first
// answer, it cannot be replaced.
func stagedContradictsDecided[Tx any](e *env[Tx]) {
	ops := operators.New(e.Store(idempotency.Options{}))
	torn := func(key string) (*refund[Tx], *staged.Runner[string, string, Tx]) {
		f, s := e.stagedRefunds(0)
		f.outside.Provider = "bank"
		f.call = func(_ context.Context, providerKey string) (string, error) {
			if _, err := staged.HandleEvent(e.Ctx, e.Store(idempotency.Options{}), said("evt_1", providerKey, staged.StepRejected), nil); err != nil {
				e.Error(err)
			}
			return f.provider.pay(providerKey), nil
		}
		if _, err := s.Do(e.Ctx, stagedOp(key), key); !errors.Is(err, idempotency.ErrUnknown) {
			e.Errorf("%s: %v", key, err)
		}
		f.call = nil
		return f, s
	}
	for _, c := range []struct {
		as              string
		r               operators.Resolution
		state           idempotency.State
		payments, calls int
	}{
		{operators.AsStepDone, operators.Resolution{Step: staged.StepDone, StepResult: "it is"}, idempotency.StateSucceeded, 1, 1},
		{operators.AsStepRejected, operators.Resolution{Step: staged.StepRejected, Rejection: declined}, idempotency.StateRejected, 1, 1},
		{operators.AsStepNotDone, operators.Resolution{Step: staged.StepNotDone}, idempotency.StateSucceeded, 1, 2},
		{operators.AsSucceeded, operators.Resolution{Succeed: true, Result: "it is"}, idempotency.StateSucceeded, 1, 1},
		{operators.AsRejected, operators.Resolution{Reject: true, Rejection: declined}, idempotency.StateRejected, 1, 1},
	} {
		f, s := torn(c.as)
		op := e.wantState(c.as, idempotency.StateUnknown)
		if got := strings.Join(operators.Choices(op), " "); got != "step-done step-not-done step-rejected succeeded rejected" {
			e.Errorf("the choices are %s", got)
		}
		if err := ops.Resolve(e.Ctx, ref(c.as), operators.Resolution{Resume: true}, who()); !errors.Is(err, staged.ErrState) {
			e.Errorf("resume: %v", err)
		}
		if err := ops.Resolve(e.Ctx, ref(c.as), c.r, who()); err != nil {
			e.Errorf("%s: %v", c.as, err)
		}
		if _, err := s.Complete(e.Ctx); err != nil {
			e.Error(err)
		}
		if op := e.wantState(c.as, c.state); op.Contradicted {
			e.Errorf("%s: %+v", c.as, op)
		}
		f.provider.want(e, c.payments, c.calls)
	}
	// After the step that used the answer, only the whole operation can be decided.
	f, s := e.stagedRefunds(0)
	f.call = func(_ context.Context, key string) (string, error) {
		// A step that begins later has a later time.
		for begun := stepOf(e.show("used"), "pay").Begun; time.Since(begun) < 5*time.Millisecond; {
			time.Sleep(time.Millisecond)
		}
		return f.provider.pay(key), nil
	}
	f.closed = func() error { return errTimeout }
	if _, err := s.Do(e.Ctx, stagedOp("used"), "used"); !errors.Is(err, errTimeout) {
		e.Error(err)
	}
	if _, err := staged.HandleEvent(e.Ctx, e.Store(idempotency.Options{}), said("evt_1", s.ProviderKey(ref("used"), "pay"), staged.StepRejected), nil); err != nil {
		e.Error(err)
	}
	if op := e.wantState("used", idempotency.StateUnknown); op.Step != "" || !strings.Contains(op.Reason, "contradicts itself") || strings.Join(operators.Choices(op), " ") != "resume succeeded rejected" {
		e.Errorf("%+v, %v", op, operators.Choices(op))
	}
	f.closed = nil
	if err := ops.Resolve(e.Ctx, ref("used"), operators.Resolution{Resume: true}, who()); err != nil {
		e.Error(err)
	}
	if done, err := s.Complete(e.Ctx); err != nil || done.Succeeded != 1 {
		e.Errorf("%+v, %v", done, err)
	}
	e.wantRefunded("used")
}

// stagedReferenceKept sets a reference in calls whose outcome is not stored: events find them by it all the same.
func stagedReferenceKept[Tx any](e *env[Tx]) {
	store := e.Store(idempotency.Options{})
	for name, c := range map[string]struct {
		outside  staged.ExternalCall[string]
		answer   error
		event    bool
		provider string
	}{
		"parked":                     {answer: errTimeout},
		"tried again":                {outside: staged.ExternalCall[string]{OnLeaseEnd: staged.TakeOver}, answer: errTimeout},
		"not done":                   {answer: staged.NotDone(errTimeout)},
		"accepted":                   {answer: staged.Accepted("", time.Hour)},
		"accepted, after the event":  {answer: staged.Accepted("", time.Hour), event: true},
		"no answer, after the event": {answer: errTimeout, event: true},
		"not done, after the event":  {answer: staged.NotDone(errTimeout), event: true},
		"done, after the event":      {event: true},
		"done":                       {},
		"done, of a named provider":  {outside: staged.ExternalCall[string]{Provider: "bank"}},
	} {
		f, s := e.stagedRefunds(0)
		f.outside = c.outside
		f.call = func(ctx context.Context, key string) (string, error) {
			staged.SetReference(ctx, "re_"+name)
			if c.event {
				if _, err := staged.HandleEvent(ctx, store, said("evt_1", key, staged.StepDone), nil); err != nil {
					e.Error(err)
				}
			}
			return f.provider.pay(key), c.answer
		}
		if _, err := s.Do(e.Ctx, stagedOp(name), name); (err == nil) != (c.answer == nil || c.event) {
			e.Errorf("%s: %v", name, err)
		}
		event := staged.ProviderEvent{ID: "evt_2", Provider: c.outside.Provider, Reference: "re_" + name}
		if isNew, err := staged.HandleEvent(e.Ctx, store, event, nil); err != nil || !isNew {
			e.Errorf("%s: by its reference: %v, %v", name, isNew, err)
		}
	}
	// An event that has the key, and the reference.
	f, s := parkedAt(e, "a")
	f.call = nil
	first := said("evt_1", s.ProviderKey(ref("a"), "pay"), staged.StepDone)
	first.Provider, first.Reference = "bank", "re_a"
	later := staged.ProviderEvent{ID: "evt_2", Provider: "bank", Reference: "re_a", Outcome: staged.StepReversed}
	for _, event := range []staged.ProviderEvent{first, later} {
		if _, err := staged.HandleEvent(e.Ctx, store, event, nil); err != nil {
			e.Error(err)
		}
	}
	// The key says whose the reference is, and the event does not.
	f, s = e.stagedRefunds(0)
	f.outside.Provider = "bank"
	if _, err := s.Do(e.Ctx, stagedOp("b"), "b"); err != nil {
		e.Error(err)
	}
	first = staged.ProviderEvent{ID: "evt_1", ProviderKey: s.ProviderKey(ref("b"), "pay"), Reference: "re_b"}
	later = staged.ProviderEvent{ID: "evt_2", Provider: "bank", Reference: "re_b", Outcome: staged.StepReversed}
	for _, event := range []staged.ProviderEvent{first, later} {
		if _, err := staged.HandleEvent(e.Ctx, store, event, nil); err != nil {
			e.Errorf("%s: %v", event.ID, err)
		}
	}
}

// stagedDoneAfterAll reports a call as done after it was taken for not done. It is not made again.
func stagedDoneAfterAll[Tx any](e *env[Tx]) {
	f, s := e.stagedRefunds(0)
	f.call = func(_ context.Context, key string) (string, error) {
		f.provider.pay(key)
		return "", staged.NotDone(errTimeout)
	}
	if _, err := s.Do(e.Ctx, stagedOp("a"), "a"); !errors.Is(err, errTimeout) {
		e.Error(err)
	}
	if _, err := staged.HandleEvent(e.Ctx, e.Store(idempotency.Options{}), said("evt_1", s.ProviderKey(ref("a"), "pay"), staged.StepDone), nil); err != nil {
		e.Error(err)
	}
	e.Eventually("it goes on", func() bool {
		done, err := s.Complete(e.Ctx)
		return err != nil || done.Succeeded == 1
	})
	f.provider.want(e, 1, 1)
	e.wantRefunded("a")
}
