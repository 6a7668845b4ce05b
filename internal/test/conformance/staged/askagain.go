package staged

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
)

// slowBank ignores keys. It carries the first request out only after lookups have found nothing twice.
type slowBank struct {
	requests, payments, lookups int
	onItsWay                    bool
}

func (b *slowBank) post() error {
	b.requests++
	if b.requests == 1 {
		b.onItsWay = true
		return errTimeout
	}
	b.payments++
	return nil
}

// get reports whether there is a payment.
func (b *slowBank) get() bool {
	b.lookups++
	if b.lookups > 2 && b.onItsWay {
		b.onItsWay = false
		b.payments++
	}
	return b.payments > 0
}

// stagedAskAgain asks a provider that answers "not found" while a request is still on its way to it.
func stagedAskAgain[Tx any](e *env[Tx]) {
	for name, c := range map[string]struct {
		notFound           func(ctx context.Context) error
		payments, requests int
	}{
		"not found is not done": { // the control
			func(context.Context) error { return staged.NotDone(errors.New("not found")) }, 2, 2,
		},
		"asked again": {
			func(ctx context.Context) error {
				if staged.CallAge(ctx) < time.Hour { // the slowest execution
					return staged.AskAgain(time.Millisecond)
				}
				return staged.NotDone(errors.New("not found"))
			}, 1, 1,
		},
	} {
		b, ages := &slowBank{}, []time.Duration(nil)
		f := &refund[Tx]{e: e, provider: newProvider()}
		f.call = func(ctx context.Context, _ string) (string, error) {
			if age := staged.CallAge(ctx); age != 0 {
				e.Errorf("%s: a call that begins is %v old", name, age)
			}
			return "posted", b.post()
		}
		f.outside.Reconcile = func(ctx context.Context, _ string) (string, error) {
			ages = append(ages, staged.CallAge(ctx))
			if b.get() {
				return "found", nil
			}
			return "", c.notFound(ctx)
		}
		stages := f.stages()
		stages.MaxAttempts = 2 // asking does not count
		s := e.staged(stages, idempotency.Options{})
		var open *staged.StepError
		if _, err := s.Do(e.Ctx, stagedOp(name), name); !errors.As(err, &open) {
			e.Errorf("%s: %v", name, err)
		}
		e.Eventually(name, func() bool {
			if _, err := s.Complete(e.Ctx); err != nil {
				e.Fatal(err)
			}
			return e.show(name).State != idempotency.StateWaiting
		})
		for range 3 {
			b.get() // the request on its way arrives at last
		}
		if b.payments != c.payments || b.requests != c.requests {
			e.Errorf("%s: %d payments and %d requests, want %d and %d", name, b.payments, b.requests, c.payments, c.requests)
		}
		for i, age := range ages {
			if age < 0 || i > 0 && age < ages[i-1] {
				e.Errorf("%s: the ages of the call: %v", name, ages)
			}
		}
		if c.requests == 1 {
			e.wantRefunded(name)
		}
	}
}

// takeOverAge checks the age that the function of a TakeOver sees: that of the first request, and none if that was
// surely not done.
func (e *env[Tx]) takeOverAge() {
	for name, c := range map[string]struct {
		first error
		old   bool
	}{"unknown": {errTimeout, true}, "not done": {staged.NotDone(errTimeout), false}} {
		f, s := e.stagedRefunds(0)
		f.outside.OnLeaseEnd = staged.TakeOver
		var ages []time.Duration
		answer := c.first
		f.call = func(ctx context.Context, _ string) (string, error) {
			ages = append(ages, staged.CallAge(ctx))
			return "paid", answer
		}
		if _, err := s.Do(e.Ctx, stagedOp(name), name); err == nil {
			e.Errorf("%s: the call failed, and the operation succeeded", name)
		}
		answer = nil
		e.Must(`UPDATE holdfast_steps SET begun_at = begun_at - 7200000000 WHERE name = 'pay'`)
		e.Must(`UPDATE holdfast_staged SET due_at = 0 WHERE state = 1`)
		if _, err := s.Complete(e.Ctx); err != nil {
			e.Error(err)
		}
		if len(ages) != 2 || ages[0] != 0 || c.old && ages[1] < 2*time.Hour || !c.old && ages[1] != 0 {
			e.Errorf("%s: the ages %v", name, ages)
		}
	}
}

// stagedCallAge checks the pause of AskAgain, its bounds, and that a new call has a new age.
func stagedCallAge[Tx any](e *env[Tx]) {
	e.takeOverAge()
	f, s := e.stagedRefunds(0)
	answer := error(nil)
	var age time.Duration
	f.outside.Reconcile = func(ctx context.Context, _ string) (string, error) {
		age = staged.CallAge(ctx)
		return "", answer
	}
	f.call = func(context.Context, string) (string, error) { return "", staged.AskAgain(time.Hour) }
	var open *staged.StepError
	if _, err := s.Do(e.Ctx, stagedOp("a"), "a"); !errors.As(err, &open) || !errors.Is(err, idempotency.ErrUnknown) {
		e.Errorf("the function itself: %v", err)
	}
	if op := e.wantState("a", idempotency.StateWaiting); op.Due < 50*time.Minute || op.Started != 0 || op.Finished != 0 || stepOf(op, "pay").State != staged.Begun || op.Reason == "" {
		e.Errorf("%+v", op)
	}
	due := func(err error) {
		e.Helper()
		answer = err
		e.Must(`UPDATE holdfast_staged SET due_at = 0 WHERE state = 1`)
		if done, err := s.Complete(e.Ctx); err != nil || done.Failed != 1 {
			e.Errorf("%+v, %v", done, err)
		}
	}
	e.Must(`UPDATE holdfast_steps SET begun_at = begun_at - 7200000000 WHERE name = 'pay'`)
	due(staged.AskAgain(time.Hour))
	if age < 2*time.Hour {
		e.Errorf("the call is %v old", age)
	}
	due(staged.NotDone(errTimeout)) // called again
	due(staged.AskAgain(time.Hour))
	if age > time.Hour {
		e.Errorf("the second call is %v old", age)
	}
	for _, bad := range []time.Duration{0, 60, -time.Hour, 31 * 24 * time.Hour} {
		due(staged.AskAgain(bad))
		if op := e.wantState("a", idempotency.StateWaiting); op.Started == 0 {
			e.Errorf("AskAgain(%v): %+v", bad, op)
		}
	}
	// Where nothing says what follows, a person does.
	f, s = e.stagedRefunds(0)
	f.call = func(context.Context, string) (string, error) { return "", staged.AskAgain(time.Hour) }
	var parked *staged.ParkedError
	if _, err := s.Do(e.Ctx, stagedOp("c"), "c"); !errors.As(err, &parked) {
		e.Error(err)
	}
	for name, f := range map[string]func(){"CallAge": func() { staged.CallAge(e.Ctx) }, "SetReference": func() { staged.SetReference(e.Ctx, "a") }} {
		func() {
			defer func() {
				if recover() == nil {
					e.Errorf("%s outside of a call did not panic", name)
				}
			}()
			f()
		}()
	}
}

// stagedOverload takes the database away from attempts before they call anything. They do not count.
func stagedOverload[Tx any](e *env[Tx]) {
	f := &refund[Tx]{e: e, provider: newProvider()}
	stages := f.stages()
	stages.MaxAttempts = 2
	s := e.staged(stages, idempotency.Options{})
	f.before = func(int) error {
		e.Must(`ALTER TABLE holdfast_steps RENAME TO holdfast_away`)
		return nil
	}
	for n := range 5 {
		_, err := s.Do(e.Ctx, stagedOp("a"), "a")
		e.Must(`ALTER TABLE holdfast_away RENAME TO holdfast_steps`)
		if err == nil || errors.Is(err, idempotency.ErrUnknown) {
			e.Fatalf("attempt %d: %v", n, err)
		}
		if op := e.wantState("a", idempotency.StateWaiting); op.Started != 0 || op.Finished != 0 {
			e.Errorf("attempt %d: %+v", n, op)
		}
		e.Must(`UPDATE holdfast_staged SET due_at = 0`)
	}
	f.before = nil
	if _, err := s.Do(e.Ctx, stagedOp("a"), "a"); err != nil {
		e.Error(err)
	}
	f.provider.want(e, 1, 1)
	e.wantRefunded("a")
	// An error of Run, or of a call, counts.
	for key, fails := range map[string]func(f *refund[Tx]){
		"run": func(f *refund[Tx]) { f.before = func(int) error { return errTimeout } },
		"call": func(f *refund[Tx]) {
			f.outside.OnLeaseEnd = staged.TakeOver
			f.call = func(context.Context, string) (string, error) { return "", errTimeout }
		},
	} {
		f := &refund[Tx]{e: e, provider: newProvider()}
		fails(f)
		stages := f.stages()
		stages.MaxAttempts = 2
		s := e.staged(stages, idempotency.Options{})
		e.Eventually(key+" is parked", func() bool {
			_, err := s.Do(e.Ctx, stagedOp(key), key)
			var parked *staged.ParkedError
			return errors.As(err, &parked)
		})
		if op := e.wantState(key, idempotency.StateUnknown); op.Started != 2 {
			e.Errorf("%s: %+v", key, op)
		}
	}
}

// stagedStopped ends the callers' contexts between steps, more often than MaxAttempts. These attempts do not count.
func stagedStopped[Tx any](e *env[Tx]) {
	f := &refund[Tx]{e: e, provider: newProvider()}
	stages := f.stages()
	stages.MaxAttempts = 2
	s := e.staged(stages, idempotency.Options{})
	for range 5 {
		ctx, cancel := context.WithCancel(e.Ctx)
		f.before = func(int) error { cancel(); return nil }
		if _, err := s.Do(ctx, stagedOp("a"), "a"); !errors.Is(err, context.Canceled) {
			e.Error(err)
		}
		cancel()
	}
	f.before = nil
	if _, err := s.Do(e.Ctx, stagedOp("a"), "a"); err != nil {
		e.Error(err)
	}
	f.provider.want(e, 1, 1)
	e.wantRefunded("a")
}
