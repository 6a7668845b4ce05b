package staged

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/core"
)

// Run is one worker's attempt at a staged operation. Use it only in the goroutine of Workflow.Run.
// Its model is internal/test/model/staged.pml.
type Run[Tx any] struct {
	transitions *transitions[Tx]
	caller      context.Context
	id          once.ID
	attempt     []byte
	token       int64
	restored    bool
	fresh       bool // the operation has begun with this attempt: no step was done before
	lease       time.Duration
	until       time.Time
	format      KeyFormat
	used        map[string]bool
	stopped     bool  // stopped between steps, because the caller's context ended
	over        error // why nothing more may be written
	tried       bool  // an external call, or its Reconcile, ran
	blocked     error // the database's, before a function of a step ran
	open        *StepError
	undone      error         // of a call that was certainly not done
	again       time.Duration // what the call, or its Reconcile, asked for with AskAgain
	at          *calling      // an external call whose outcome is not stored
	unknown     bool          // the outcome of a commit of this attempt is unknown
}

// maxSettles is the longest time until the deadline of Accepted.
const maxSettles = 10 * 365 * 24 * time.Hour

// Token returns the fencing token, which rises with every worker that takes the operation. Pass it
// to systems that can compare it; Holdfast fences this database's rows without it.
func (r *Run[Tx]) Token() int64 { return r.token }

// Local is a step in this database: fn's writes and the recovery point are committed together, if
// the worker still has the operation. If the step was done before, Local returns its stored
// result, and fn does not run. The first attempt gets the result as it decodes, too: see
// [idempotency.Do].
//
// fn follows the rules of the function of [idempotency.Do]. An error of fn rolls back and is
// returned. If fn has ended its transaction itself, so that a part of its writes is committed without
// the recovery point, the next attempt finds the step begun, and the operation waits for an operator.
// Errors: [ErrStale], [idempotency.ErrUnknown], [holdfast.ErrInvalid],
// [holdfast.ErrRetry], [holdfast.ErrTxLost], a *[ParkedError], errors of fn.
func Local[T, Tx any](ctx context.Context, r *Run[Tx], step string, fn func(ctx context.Context, tx Tx) (T, error)) (value T, err error) {
	row, err := r.enter(ctx, step)
	if err != nil {
		return value, err
	}
	begins := r.transitions.SQL.StepInsert.With(r.id.Args(step, ledger.StepBegun, "", nil, r.token, resultType[T]())...)
	switch {
	case row == nil:
	case row.State == ledger.StepNotDone: // an operator says so
		begins, row = r.transitions.SQL.StepBegin.With(r.id.Args(step, r.token, resultType[T](), 1)...), nil
	default:
		return localStored[T](ctx, r, step, row)
	}
	outer := ctx
	ctx, cancel := context.WithDeadlineCause(ctx, r.until.Add(-r.lease/10), fmt.Errorf("staged: step %q: the lease ends: %w", step, context.DeadlineExceeded))
	defer cancel()
	start, sent, ran, failed := time.Now(), false, false, false
	owning := r.transitions.owning(r, "", ledger.ModeTakeOver, r.lease)
	err = r.transitions.Send(ctx, once.Transaction[Tx]{First: &owning, Foreign: true, Then: func(ctx context.Context, tx Tx, q core.Querier, a core.Reply) (last core.Bound, err error) {
		if err := r.transitions.owned(ctx, q, r, step, a); err != nil {
			return last, err
		}
		if sent {
			row, err = r.transitions.Step(ctx, q, r.id, step)
			if err != nil || row != nil && row.State != ledger.StepNotDone {
				return owning, err // done by an earlier, ambiguous commit
			}
			row = nil
		}
		sent = true
		if a := begins.Run(ctx, q); a.Err != nil {
			return last, a.Err
		}
		ran, failed = true, true
		v, err := fn(ctx, tx)
		if failed = err != nil; failed {
			return last, &once.FuncError{Err: once.Inner(r.transitions.Access.Explain(err))}
		}
		b, err := packed(r.transitions, r.id, ofStep(step, false), v, &value)
		return r.transitions.SQL.StepEnd.With(r.id.Args(step, ledger.StepDone, b, nil, nil)...), err
	}})
	if err != nil {
		if !ran {
			r.blocked = err
		}
		if failed {
			row, unread := r.left(outer, step)
			switch {
			case row != nil:
				return localStored[T](outer, r, step, row)
			case unread != nil:
				r.open = &StepError{Step: step, Err: unread} // the next attempt reads it
			}
		}
		return value, r.note(err)
	}
	r.until = start.Add(r.lease)
	if row != nil {
		return localStored[T](outer, r, step, row)
	}
	return value, nil
}

// left reads a local step whose function has failed. It returns nil unless the function had committed it as begun.
func (r *Run[Tx]) left(ctx context.Context, step string) (*ledger.StepRow, error) {
	ctx, cancel := core.Cleanup(ctx)
	defer cancel()
	row, err := r.transitions.Step(ctx, r.transitions.Access.Pool, r.id, step)
	if err != nil || row == nil || row.State != ledger.StepBegun {
		return nil, r.transitions.Explain(err)
	}
	return row, nil
}

// localStored is stored for a local step. If it has begun and not ended, what its function did was
// committed without its result, and it is not done again.
func localStored[T, Tx any](ctx context.Context, r *Run[Tx], step string, row *ledger.StepRow) (value T, err error) {
	if row.State != ledger.StepBegun {
		return stored[T](ctx, r, step, row)
	}
	reason := "the step has begun, and what its function did is committed without its result: the function has ended its transaction itself, by COMMIT or by DDL (or the step was an outside call before)"
	err = r.transitions.move(ctx, r, step, func(now *ledger.Row) bool { return now.State == ledger.Parked }, func(ctx context.Context, q core.Querier) (core.Result, error) {
		if a := r.transitions.owning(r, step, ledger.ModePark, r.lease).Run(ctx, q); a.Err != nil || a.Affected != 1 {
			return a.Result, a.Err
		}
		return r.transitions.SQL.Park.Exec(ctx, q, r.id.Args(r.attempt, r.token, reason)...)
	})
	if err == nil {
		r.over = &ParkedError{Step: step, Reason: reason}
		err = r.over
	}
	return value, r.note(err)
}

// enter runs before every step. It finds the result of a step that has ended.
func (r *Run[Tx]) enter(ctx context.Context, step string) (*ledger.StepRow, error) {
	if err := core.CheckName("step", step, false); err != nil {
		return nil, err
	}
	switch {
	case r.over != nil:
		return nil, r.over
	case r.open != nil:
		return nil, r.open
	case r.undone != nil:
		return nil, r.undone
	case r.used[step]:
		return nil, once.Invalid("step", fmt.Sprintf("%q was used before in this operation: a step has a name of its own", step))
	case r.caller.Err() != nil:
		r.stopped = true
		return nil, context.Cause(r.caller) //nolint:contextcheck // it is the caller's that ended
	}
	r.used[step] = true
	if r.fresh {
		return nil, nil
	}
	row, err := r.transitions.Step(ctx, r.transitions.Access.Pool, r.id, step)
	if err != nil {
		err = r.transitions.Explain(err)
		r.blocked = err
	}
	return row, err
}

// begin commits that the external call is about to be made. row is the result of a step that has
// ended already. ambiguous reports that the step was begun before. anew says that an earlier call
// was certainly not done.
func (r *Run[Tx]) begin(ctx context.Context, at *calling, lease time.Duration, resultType string, anew bool) (row *ledger.StepRow, ambiguous bool, err error) {
	start, step, mode, first := time.Now(), at.step, at.mode, 0
	if anew {
		first = 1
	}
	at.age = 0
	owning := r.transitions.owning(r, step, mode, lease)
	err = r.transitions.Send(ctx, once.Transaction[Tx]{First: &owning, Then: func(ctx context.Context, _ Tx, q core.Querier, a core.Reply) (last core.Bound, err error) {
		if err := r.transitions.owned(ctx, q, r, step, a); err != nil {
			return last, err
		}
		if row, err = r.transitions.Step(ctx, q, r.id, step); err != nil {
			return last, err
		}
		switch {
		case row == nil:
			ambiguous = r.restored && mode == ledger.ModeReconcile // it may have been begun in the lost time
			return r.transitions.SQL.StepInsert.With(r.id.Args(step, ledger.StepBegun, at.key, nil, r.token, resultType)...), nil
		case row.State == ledger.StepDone || row.State == ledger.StepRejected:
			return r.transitions.owning(r, "", ledger.ModeTakeOver, r.lease), nil
		}
		// A run begins a step once. If the token is this run's, the earlier begin was its own
		// ambiguous commit, and ambiguous keeps what that execution of this function found.
		open := row.State == ledger.StepBegun || row.State == ledger.StepAccepted
		ambiguous = open && (row.Token != r.token || ambiguous) || r.restored && mode == ledger.ModeReconcile
		if open && !anew {
			at.age, at.attempt = time.Duration(row.Age)*time.Microsecond, time.Now()
		}
		row = nil
		return r.transitions.SQL.StepBegin.With(r.id.Args(step, r.token, resultType, first)...), nil
	}})
	if err == nil {
		r.until = start.Add(lease)
	} else {
		r.blocked = err
	}
	return row, ambiguous, r.note(err)
}

// end commits the result of an external call. row is a result that was stored before.
func (r *Run[Tx]) end(ctx context.Context, at *calling, state int, answer []byte, rej *idempotency.Rejection) (row *ledger.StepRow, err error) {
	start, step := time.Now(), at.step
	ends := r.transitions.SQL.StepEnd.With(r.id.Args(append([]any{step, state, once.Nullable(answer)}, at.names()...)...)...)
	owning := r.transitions.owning(r, "", ledger.ModeTakeOver, r.lease)
	err = r.transitions.Send(ctx, once.Transaction[Tx]{First: &owning, Then: func(ctx context.Context, _ Tx, q core.Querier, a core.Reply) (core.Bound, error) {
		return ends, r.transitions.owned(ctx, q, r, step, a)
	}})
	if errors.Is(err, holdfast.ErrTxLost) { // it has ended: an event came, or an earlier, ambiguous commit
		return r.endAgain(ctx, at, state, ends, rej)
	}
	if err == nil {
		r.at = nil
		r.until = start.Add(r.lease)
	}
	return nil, r.note(err)
}

// endAgain is end for a step that has ended already.
func (r *Run[Tx]) endAgain(ctx context.Context, at *calling, state int, ends core.Bound, rej *idempotency.Rejection) (row *ledger.StepRow, err error) {
	start, step := time.Now(), at.step
	torn := "" // why the operation was parked
	err = r.transitions.Write(ctx, func(ctx context.Context, _ Tx, q core.Querier) error {
		if err := r.transitions.own(ctx, q, r, step); err != nil {
			if now, e := r.transitions.Read(ctx, q, r.id); torn != "" && e == nil && now != nil && now.Reason == torn {
				return nil // parked by an earlier, ambiguous commit
			}
			return err
		}
		torn = ""
		a := ends.Run(ctx, q)
		if a.Err != nil || a.Affected == 1 {
			return a.Err
		}
		if row, err = r.transitions.Step(ctx, q, r.id, step); err == nil {
			err = r.transitions.refer(ctx, q, r)
		}
		switch {
		case err != nil || row == nil:
			return err
		case row.State == ledger.StepNotDone:
			row = nil
		case state != ledger.StepNotDone && contradicts(row.State, state):
			torn = once.Cut(r.transitions.contradiction(r.id, step, row, "the call", state, rej), maxReason)
			return r.transitions.tear(ctx, q, r.id, step, torn)
		}
		return nil
	})
	switch {
	case err == nil && torn != "":
		r.over = &ParkedError{Step: step, Reason: torn}
	case err == nil:
		r.at = nil
		r.until = start.Add(r.lease)
	}
	return row, r.note(err)
}

// park ends the attempt, and the operation's outcome is unknown. If the step's result is already
// known, park returns it as row and parks nothing.
func (r *Run[Tx]) park(ctx context.Context, step, reason string) (row *ledger.StepRow, err error) {
	row, err = r.transitions.park(ctx, r, step, reason)
	if err != nil {
		return nil, r.note(err)
	}
	if row == nil {
		r.over = &ParkedError{Step: step, Reason: reason}
	}
	return row, r.over
}

func parkAt[T, Tx any](ctx context.Context, r *Run[Tx], step, reason string) (value T, err error) {
	row, err := r.park(ctx, step, reason)
	if row != nil {
		return stored[T](ctx, r, step, row)
	}
	return value, err
}

// note remembers an error that means that the operation is lost, and a commit whose outcome is unknown.
func (r *Run[Tx]) note(err error) error {
	r.unknown = r.unknown || errors.Is(err, idempotency.ErrUnknown)
	if errors.Is(err, ErrStale) {
		r.over = err
	}
	return err
}

func (r *Run[Tx]) openStep() string {
	if r.open != nil {
		return r.open.Step
	}
	return ""
}
