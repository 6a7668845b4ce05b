package staged

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
)

// anothersID gives a runner the ID of another one's operation, as the address of the one's status is sent to the other's: it is not
// there, and nothing of it is taken back.
func anothersID[Tx any](e *env[Tx]) {
	runner := func(name string, o idempotency.Options) *staged.Runner[string, string, Tx] {
		return e.staged(staged.Workflow[string, string, Tx]{
			Name: name,
			Run:  func(context.Context, *staged.Run[Tx], string) (string, error) { return "", errors.New("not now") },
			Undo: func(ctx context.Context, tx Tx, _ string, _ staged.Operation) error {
				return e.Effect(ctx, tx, name+" undone")
			},
		}, o)
	}
	st := e.started(runner("refund", idempotency.Options{}), "a")
	for what, other := range map[string]*staged.Runner[string, string, Tx]{
		"payout": runner("payout", idempotency.Options{}), "refund of another namespace": runner("refund", idempotency.Options{Namespace: "other"}),
	} {
		if _, err := other.CancelID(e.Ctx, st.ID, "a test"); !errors.Is(err, staged.ErrNotFound) {
			e.Errorf("%s cancels: %v", what, err)
		}
		if found, err := other.LookupID(e.Ctx, st.ID, holdfast.NoWait); err != nil || found.State != idempotency.StateAbsent {
			e.Errorf("%s looks up: %+v, %v", what, found, err)
		}
	}
	if n := e.Effects("payout undone") + e.Effects("refund undone"); n != 0 {
		e.Errorf("%d effects", n)
	}
	if o, err := runner("refund", idempotency.Options{}).CancelID(e.Ctx, st.ID, "a test"); err != nil || o != idempotency.Executed {
		e.Errorf("its own: %v, %v", o, err)
	}
	e.WantOnce("refund undone")
}

// waitOfADeadKey waits for an operation whose transaction was rolled back, and whose key an operation had whose life is over.
func waitOfADeadKey[Tx any](e *env[Tx]) {
	s := e.staged(staged.Workflow[string, string, Tx]{Name: "refund", Run: func(context.Context, *staged.Run[Tx], string) (string, error) { return "old", nil }},
		idempotency.Options{ResultTTL: time.Hour, KeyTTL: time.Hour})
	_, err := s.Do(e.Ctx, stagedOp("a"), "a")
	e.Check(err)
	e.Must(`UPDATE holdfast_staged SET result_expires_at = 1, key_expires_at = 1`)
	boom := errors.New("boom")
	var st *staged.Started[string]
	err = e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) (err error) {
		st, err = s.StartTx(ctx, tx, stagedOp("a"), "a")
		return errors.Join(err, boom)
	})
	if !errors.Is(err, boom) {
		e.Fatal(err)
	}
	if _, err := st.Wait(e.Ctx); !errors.Is(err, staged.ErrNotFound) {
		e.Errorf("got %v", err)
	}
}

// outcomesOfNobody gives outcomes that are none.
func outcomesOfNobody[Tx any](e *env[Tx]) {
	store := e.Store(idempotency.Options{})
	for _, outcome := range []staged.StepOutcome{-1, staged.StepReversed + 1} {
		if _, err := staged.HandleEvent(e.Ctx, store, staged.ProviderEvent{ID: "1", ProviderKey: "k", Outcome: outcome}, nil); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("an event: %v", err)
		}
	}
	for _, outcome := range []staged.StepOutcome{-1, staged.StepReversed, staged.StepReversed + 1} {
		if err := operators.New(store).Resolve(e.Ctx, ref("a"), operators.Resolution{Step: outcome}, who()); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("a resolution: %v", err)
		}
	}
}
