package staged

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// strict is a type with its own UnmarshalJSON, so no other code can check a value for it.
type strict struct{ ref string }

func (s strict) MarshalJSON() ([]byte, error) { return json.Marshal("ref:" + s.ref) }

func (s *strict) UnmarshalJSON(b []byte) (err error) {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return err
	}
	var ok bool
	if s.ref, ok = strings.CutPrefix(text, "ref:"); !ok {
		err = errors.New("it is no reference")
	}
	return err
}

// typed is a program whose external call returns a T.
type typed[T, Tx any] struct {
	e     *env[Tx]
	calls int
	call  func(key string) (T, error)
	// before and after run around the last step.
	before, after func() error
}

func (p *typed[T, Tx]) staged() *staged.Runner[string, T, Tx] {
	p.e.Helper()
	s, err := staged.New(p.e.Store(idempotency.Options{}), staged.Workflow[string, T, Tx]{
		Name: "refund", Run: p.run, Backoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond,
	})
	if err != nil {
		p.e.Fatal(err)
	}
	return s
}

func (p *typed[T, Tx]) run(ctx context.Context, r *staged.Run[Tx], key string) (paid T, err error) {
	paid, err = staged.Call(ctx, r, staged.ExternalCall[T]{Step: "pay"}, func(_ context.Context, key string) (T, error) {
		p.calls++
		return p.call(key)
	})
	if err == nil && p.before != nil {
		err = p.before()
	}
	if err != nil {
		return paid, err
	}
	_, err = staged.Local(ctx, r, "close", func(ctx context.Context, tx Tx) (bool, error) {
		return true, p.e.Effect(ctx, tx, key+" closed")
	})
	if err == nil && p.after != nil {
		err = p.after()
	}
	return paid, err
}

// times makes a call fail n times with errTimeout.
func times[T any](n int, then T) func(string) (T, error) {
	return func(string) (T, error) {
		if n--; n >= 0 {
			var none T
			return none, errTimeout
		}
		return then, nil
	}
}

// stagedResultType checks that a result which the program could not read is refused before it is
// stored, from provider events and from operators alike.
func stagedResultType[Tx any](e *env[Tx]) {
	dbtest.NotUnderRace(e, "one worker after the other")
	store := e.Store(idempotency.Options{})
	ops := operators.New(store)
	_, s := parkedAt(e, "a")
	for name, wrong := range map[string]any{
		"a number": 12, "nothing": nil, "an object": struct{ Ref string }{"bank 7"}, "bytes": []byte("bank 7"),
		"a list": []string{"bank 7"}, "a number's text": json.RawMessage("12"),
	} {
		event := staged.ProviderEvent{ID: name, Ref: ref("a"), Step: "pay", Outcome: staged.StepDone, Result: wrong}
		_, err := staged.HandleEvent(e.Ctx, store, event, nil)
		for by, err := range map[string]error{
			"Events":     err,
			"StepResult": ops.Resolve(e.Ctx, ref("a"), operators.Resolution{Step: staged.StepDone, StepResult: wrong}, who()),
			"Result":     ops.Resolve(e.Ctx, ref("a"), operators.Resolution{Succeed: true, Result: wrong}, who()),
		} {
			var input *holdfast.InputError
			if !errors.As(err, &input) || !strings.Contains(input.Field, "Result") || !strings.Contains(input.Problem, "string") {
				e.Errorf("%s as %s: %v", name, by, err)
			}
		}
	}
	if op := e.wantState("a", idempotency.StateUnknown); len(op.Events) != 0 || len(op.Interventions) != 0 {
		e.Errorf("what was refused left %+v", op)
	}
	e.Check(ops.Resolve(e.Ctx, ref("a"), operators.Resolution{Step: staged.StepDone, StepResult: json.RawMessage(`"bank 7"`)}, who()))
	if r, err := s.Do(e.Ctx, stagedOp("a"), "a"); err != nil || r.Value != "bank 7" {
		e.Errorf("%v, %v", r, err)
	}
}

// stagedResultUnread checks that a stored result which the program cannot read parks the
// operation at that step, and that an operator can replace it.
func stagedResultUnread[Tx any](e *env[Tx]) {
	ops := operators.New(e.Store(idempotency.Options{}))
	p := &typed[strict, Tx]{e: e, call: times(1, strict{"again"})}
	s := p.staged()
	unread := func(when string) {
		e.Helper()
		var parked *staged.ParkedError
		if _, err := s.Do(e.Ctx, stagedOp("a"), "a"); !errors.As(err, &parked) || parked.Step != "pay" || !strings.Contains(parked.Reason, "cannot be read") {
			e.Errorf("%s: %v", when, err)
		}
		if done, err := s.Complete(e.Ctx); err != nil || done.Found != 0 {
			e.Errorf("%s: the completer: %+v, %v", when, done, err)
		}
	}
	resolve := func(r operators.Resolution) error { return ops.Resolve(e.Ctx, ref("a"), r, who()) }
	if _, err := s.Do(e.Ctx, stagedOp("a"), "a"); !errors.Is(err, idempotency.ErrUnknown) {
		e.Error(err)
	}
	e.Check(resolve(operators.Resolution{Step: staged.StepDone, StepResult: 12}))
	unread("a number for a reference")
	for _, other := range []operators.Resolution{
		{Step: staged.StepNotDone}, {Step: staged.StepRejected, Rejection: &idempotency.Rejection{Code: "no"}},
	} {
		if err := resolve(other); !errors.Is(err, staged.ErrState) {
			e.Errorf("that it was done does not change: %v", err)
		}
	}
	e.Check(resolve(operators.Resolution{Resume: true})) // as for a program that can read it
	unread("resumed")
	e.Check(resolve(operators.Resolution{Step: staged.StepDone, StepResult: strict{"bank 7"}}))
	if r, err := s.Do(e.Ctx, stagedOp("a"), "a"); err != nil || r.Value.ref != "bank 7" {
		e.Errorf("corrected: %v, %v", r, err)
	}
	if op := e.wantState("a", idempotency.StateSucceeded); len(op.Interventions) != 3 {
		e.Errorf("%+v", op.Interventions)
	}
	e.WantOnce("a closed")
	if p.calls != 1 {
		e.Errorf("%d calls", p.calls)
	}
}

// stagedResultChanged uses a program in which a step returns a different type than before. It
// parks what it finds; an operator supplies the result in the new form, as long as no later step
// has begun with the old one.
func stagedResultChanged[Tx any](e *env[Tx]) {
	dbtest.NotUnderRace(e, "one worker after the other")
	ops := operators.New(e.Store(idempotency.Options{}))
	boom := errors.New("boom")
	fails := func() error { return boom }
	for name, c := range map[string]struct{ before, after func() error }{"unused": {before: fails}, "used": {after: fails}} {
		old := &typed[string, Tx]{e: e, call: times(0, "12"), before: c.before, after: c.after}
		if _, err := old.staged().Do(e.Ctx, stagedOp(name), name); !errors.Is(err, boom) {
			e.Error(name, err)
		}
		program := &typed[int64, Tx]{e: e, call: times[int64](0, 13)}
		var parked *staged.ParkedError
		if _, err := program.staged().Do(e.Ctx, stagedOp(name), name); !errors.As(err, &parked) || !strings.Contains(parked.Reason, "cannot be read") {
			e.Errorf("%s: %v", name, err)
		}
		give := func(v any) error {
			return ops.Resolve(e.Ctx, ref(name), operators.Resolution{Step: staged.StepDone, StepResult: v}, who())
		}
		var err error
		if name == "used" {
			if parked == nil || !strings.Contains(parked.Reason, "close") {
				e.Errorf("the reason does not name the later step: %v", parked)
			}
			if err := give(12); !errors.Is(err, staged.ErrState) {
				e.Errorf("a result that was used: %v", err)
			}
			e.Check(ops.Resolve(e.Ctx, ref(name), operators.Resolution{Resume: true}, who()))
			old.after = nil
			_, err = old.staged().Do(e.Ctx, stagedOp(name), name)
		} else {
			if err := give("12"); !errors.Is(err, holdfast.ErrInvalid) {
				e.Errorf("in the old form: %v", err)
			}
			e.Check(give(12))
			_, err = program.staged().Do(e.Ctx, stagedOp(name), name)
		}
		if e.Check(err); program.calls != 0 || old.calls != 1 {
			e.Errorf("%s: %d and %d calls", name, old.calls, program.calls)
		}
		e.wantState(name, idempotency.StateSucceeded)
		e.WantOnce(name + " closed")
	}
}
