package staged

import (
	"errors"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
)

// operatorsResumeAll resumes what is parked at no step, and leaves what a person has to look at.
func operatorsResumeAll[Tx any](e *env[Tx]) {
	ops := operators.New(e.Store(idempotency.Options{}))
	unfinished(e, "restored")
	e.Must(`UPDATE holdfast_staged SET restored = 1`)
	unfinished(e, "contradicted")
	e.Must(`UPDATE holdfast_staged SET mode = 5 WHERE restored = 0`)
	parkedAt(e, "at a step")
	var runners []*staged.Runner[string, string, Tx]
	for _, key := range []string{"1", "2", "3"} {
		_, s := unfinished(e, key)
		runners = append(runners, s)
	}
	for name, bad := range map[string]operators.Filter{"states": {States: []idempotency.State{idempotency.StateUnknown}}, "records": {Records: true}} {
		if _, err := ops.ResumeAll(e.Ctx, bad, who()); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ops.ResumeAll(e.Ctx, operators.Filter{}, holdfast.Actor{}); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("nobody: %v", err)
	}
	all := []string{"1", "2", "3"}
	dry, err := ops.ResumeAll(e.Ctx, operators.Filter{}, holdfast.Actor{}, operators.ResumeOptions{DryRun: true})
	wantResumed(e, "dry", dry, err, all, 3)
	if none, err := ops.ResumeAll(e.Ctx, operators.Filter{}, who(), operators.ResumeOptions{Because: "no such reason"}); err != nil || len(none.Operations)+len(none.Skipped) != 0 {
		e.Errorf("%+v, %v", none, err)
	}
	for _, key := range all {
		e.wantState(key, idempotency.StateUnknown)
	}
	var keys []string
	for after, more := (staged.Operation{}), true; more; more = after.ID != nil {
		page, err := ops.ResumeAll(e.Ctx, operators.Filter{After: after}, who(), operators.ResumeOptions{Because: errTimeout.Error(), Limit: 2})
		if err != nil {
			e.Fatal(err)
		}
		for _, op := range page.Operations {
			keys = append(keys, op.Key)
		}
		after = page.After
	}
	slices.Sort(keys)
	if !slices.Equal(keys, all) {
		e.Errorf("resumed %v", keys)
	}
	for i, key := range all {
		if op := e.wantState(key, idempotency.StateWaiting); len(op.Interventions) != 1 || op.Interventions[0].Action != "resume" {
			e.Errorf("%+v", op)
		}
		if _, err := runners[i].Do(e.Ctx, stagedOp(key), key); err != nil {
			e.Errorf("%s: %v", key, err)
		}
		e.wantRefunded(key)
	}
	again, err := ops.ResumeAll(e.Ctx, operators.Filter{}, who())
	wantResumed(e, "again", again, err, nil, 3)
}

func wantResumed(e testing.TB, name string, got operators.Resumed, err error, want []string, skipped int) {
	e.Helper()
	var keys []string
	for _, op := range got.Operations {
		keys = append(keys, op.Key)
	}
	slices.Sort(keys)
	if err != nil || !slices.Equal(keys, want) || len(got.Skipped) != skipped {
		e.Errorf("%s: %v, %d skipped, %v", name, keys, len(got.Skipped), err)
	}
}
