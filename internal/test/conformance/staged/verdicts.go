package staged

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
)

// stagedReconciles checks each answer of the reconcile hook, and a missing hook.
func stagedReconciles[Tx any](e *env[Tx]) {
	for _, c := range []struct {
		name, value     string
		answer          error
		state           idempotency.State
		payments, calls int
	}{
		{"done", "found", nil, idempotency.StateSucceeded, 1, 1},
		{"refused", "", idempotency.Reject("refused", "by the bank"), idempotency.StateRejected, 1, 1},
		{"not done", "", staged.NotDone(errors.New("no such payment")), idempotency.StateSucceeded, 1, 2},
		{"nobody knows", "", errTimeout, idempotency.StateUnknown, 1, 1},
	} {
		f := &refund[Tx]{e: e, provider: newProvider()}
		asked := 0
		f.outside.Reconcile = func(_ context.Context, key string) (string, error) {
			asked++
			if !f.provider.has(key) {
				e.Errorf("%s: asked by another key", c.name)
			}
			return c.value, c.answer
		}
		f.call = func(_ context.Context, key string) (string, error) {
			f.provider.pay(key)
			if _, calls := f.provider.counts(); calls == 1 {
				return "", errTimeout
			}
			return "paid", nil
		}
		stages := f.stages()
		stages.MaxAttempts = 3
		s := e.staged(stages, idempotency.Options{})
		_, err := s.Do(e.Ctx, stagedOp(c.name), c.name)
		var open *staged.StepError
		if !errors.Is(err, idempotency.ErrUnknown) || !errors.As(err, &open) || !errors.Is(err, errTimeout) {
			e.Errorf("%s: the first attempt: %v", c.name, err)
		}
		e.Eventually(c.name, func() bool {
			if _, err := s.Complete(e.Ctx); err != nil {
				e.Fatal(err)
			}
			return e.show(c.name).State != idempotency.StateWaiting
		})
		e.wantState(c.name, c.state)
		f.provider.want(e, c.payments, c.calls)
		if asked == 0 || c.state == idempotency.StateUnknown && asked != 2 {
			e.Errorf("%s: asked %d times", c.name, asked)
		}
		e.WantOnce(c.name)
	}
}

// stagedNotDone checks that a call which certainly did nothing may be repeated, regardless of its
// declaration.
func stagedNotDone[Tx any](e *env[Tx]) {
	f, s := e.stagedRefunds(0)
	refusedConnection := errors.New("connection refused")
	f.call = func(_ context.Context, key string) (string, error) {
		if f.runs.Load() < 3 {
			return "", fmt.Errorf("calling the provider: %w", staged.NotDone(refusedConnection))
		}
		return f.provider.pay(key), nil
	}
	for range 2 {
		if _, err := s.Do(e.Ctx, stagedOp("a"), "a"); !errors.Is(err, refusedConnection) || errors.Is(err, idempotency.ErrUnknown) {
			e.Errorf("got %v", err)
		}
	}
	if _, err := s.Do(e.Ctx, stagedOp("a"), "a"); err != nil {
		e.Error(err)
	}
	f.provider.want(e, 1, 1)
	e.wantRefunded("a")
	if staged.NotDone(nil) != nil {
		e.Error("no error became one")
	}
}

// stagedRejects checks that a provider's refusal is the step's answer, and that Run decides what
// follows from it.
func stagedRejects[Tx any](e *env[Tx]) {
	f, s := e.stagedRefunds(0)
	f.call = func(_ context.Context, key string) (string, error) {
		f.provider.pay(key)
		return "", idempotency.Reject("refused", "by the bank")
	}
	for _, outcome := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
		r, err := s.Do(e.Ctx, stagedOp("a"), "a")
		var rej *idempotency.Rejection
		if !errors.As(err, &rej) || rej.Code != "refused" || r.Outcome != outcome {
			e.Errorf("%v, %v", r, err)
		}
	}
	f.provider.want(e, 1, 1)
	e.wantState("a", idempotency.StateRejected)

	// The step stores the refusal: a later attempt gets the same.
	boom := errors.New("boom")
	n := 0
	again := e.staged(staged.Workflow[string, string, Tx]{
		Name: "refund", Backoff: time.Millisecond,
		Run: func(ctx context.Context, r *staged.Run[Tx], _ string) (string, error) {
			_, err := staged.Call(ctx, r, staged.ExternalCall[string]{Step: "pay"}, func(_ context.Context, key string) (string, error) {
				f.provider.pay(key)
				return "", idempotency.Reject("refused", "by the bank")
			})
			var rej *idempotency.Rejection
			if !errors.As(err, &rej) {
				return "", errors.New("no rejection")
			}
			if n++; n == 1 {
				return "", boom
			}
			return "paid in cash", nil
		},
	}, idempotency.Options{})
	if _, err := again.Do(e.Ctx, stagedOp("b"), "b"); !errors.Is(err, boom) {
		e.Error(err)
	}
	if r, err := again.Do(e.Ctx, stagedOp("b"), "b"); err != nil || r.Value != "paid in cash" {
		e.Errorf("%v, %v", r, err)
	}
	f.provider.want(e, 2, 2)
}

// stagedNotOverruled checks that Run cannot end an operation, in either way, after a call with
// an unknown outcome.
func stagedNotOverruled[Tx any](e *env[Tx]) {
	p := newProvider()
	for name, end := range map[string]error{"swallowed": nil, "rejected": idempotency.Reject("given up", "no answer")} {
		s := e.staged(staged.Workflow[string, string, Tx]{
			Name: "refund", MaxAttempts: 2, Backoff: time.Millisecond,
			Run: func(ctx context.Context, r *staged.Run[Tx], _ string) (string, error) {
				for _, step := range []string{"pay", "pay another"} {
					_, _ = staged.Call(ctx, r, staged.ExternalCall[string]{Step: step, OnLeaseEnd: staged.TakeOver}, func(_ context.Context, key string) (string, error) {
						p.pay(key)
						return "", errTimeout
					})
				}
				return "fine", end
			},
		}, idempotency.Options{})
		if r, err := s.Do(e.Ctx, stagedOp(name), name); !errors.Is(err, idempotency.ErrUnknown) {
			e.Errorf("%s: %v, %v", name, r, err)
		}
		e.wantState(name, idempotency.StateWaiting)
		var parked *staged.ParkedError
		if _, err := s.Do(e.Ctx, stagedOp(name), name); !errors.As(err, &parked) || parked.Step != "pay" {
			e.Errorf("%s: the last attempt: %v", name, err)
		}
		e.wantState(name, idempotency.StateUnknown)
	}
	p.want(e, 2, 4)
}
