package staged

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/core"
)

// packed encodes a value, and decodes it again into back: so the first attempt sees what later ones
// will. It fails for a value that does not decode, so that such a value is never committed.
func packed[T, Tx any](rows *transitions[Tx], id once.ID, at once.Place, v T, back *T) ([]byte, error) {
	*back = *new(T)
	return rows.packBack(id, at, v, back)
}

// stored returns the result of a step that ended before. If it cannot be read, stored parks the
// operation.
func stored[T, Tx any](ctx context.Context, r *Run[Tx], step string, row *ledger.StepRow) (value T, err error) {
	var none T
	switch row.State {
	case ledger.StepDone:
		if err = r.transitions.unpack(r.id, ofStep(step, false), row.Result, &value); err == nil {
			return value, nil
		}
	case ledger.StepRejected:
		var rej idempotency.Rejection
		if err = r.transitions.unpack(r.id, ofStep(step, true), row.Result, &rej); err == nil {
			return none, &rej
		}
	default:
		return none, once.Invalid("step", fmt.Sprintf("%q was an outside call before and is a local one now: give it another name", step))
	}
	return none, r.unread(ctx, step, resultType[T](), err)
}

// unread parks the operation at a step that has ended with a result that this program cannot read.
// An operator may replace the result, unless a later step has begun and so may have used it. In
// that case the operation is parked at no step.
func (r *Run[Tx]) unread(ctx context.Context, step, resultType string, cause error) error {
	at, reason := "", ""
	err := r.transitions.move(ctx, r, step, func(now *ledger.Row) bool { return now.State == ledger.Parked }, func(ctx context.Context, q core.Querier) (res core.Result, err error) {
		if _, err = r.transitions.SQL.Touch.Exec(ctx, q, r.id.Args()...); err != nil {
			return res, err
		}
		later, err := r.later(ctx, q)
		if err != nil {
			return res, err
		}
		mode := ledger.ModeCorrect
		at, reason = step, fmt.Sprintf("the stored result of step %q cannot be read: resolve the step with another, or resume with a program that reads it", step)
		if len(later) > 0 {
			mode = ledger.ModeTakeOver
			at, reason = "", fmt.Sprintf("the stored result of step %q cannot be read, and is not replaced because %q has begun since: resume with a program that reads it", step, later)
		}
		reason = once.Cut(fmt.Sprintf("%s (%v)", reason, cause), maxReason)
		if res, err = r.transitions.SQL.Own.Stmt.Exec(ctx, q, r.id.Args(r.attempt, r.token, at, mode, r.lease.Microseconds())...); err != nil || res.Affected != 1 {
			return res, err
		}
		if _, err = r.transitions.SQL.StepType.Exec(ctx, q, r.id.Args(step, resultType)...); err != nil {
			return res, err
		}
		return r.transitions.SQL.Park.Exec(ctx, q, r.id.Args(r.attempt, r.token, reason)...)
	})
	if err == nil {
		r.over = &ParkedError{Step: at, Reason: reason}
		err = r.over
	}
	return r.note(err)
}

// later returns the steps that have begun and that this run has not reached yet.
func (r *Run[Tx]) later(ctx context.Context, q core.Querier) ([]string, error) {
	rows, err := r.transitions.SQL.StepNames.Query(ctx, q, r.id.Args()...)
	if err != nil {
		return nil, err
	}
	names, err := core.Collect(rows, core.Value[string])
	return slices.DeleteFunc(names, func(name string) bool { return r.used[name] }), err
}
