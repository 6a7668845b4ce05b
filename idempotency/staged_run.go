package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Run is one worker's attempt at a staged operation. It is for the goroutine of
// Stages.Run only.
type Run[Tx any] struct {
	rows     *stagedRows[Tx]
	caller   context.Context
	hash     hash
	owner    []byte
	token    int64
	restored bool
	lease    time.Duration
	until    time.Time
	format   KeyFormat
	used     map[string]bool
	stopped  bool  // between steps, because its caller went away
	over     error // why nothing more may be written
	open     *StepError
}

// Token rises with every worker that the operation is given to. Give it to what
// can compare it; this database's rows are fenced without it.
func (r *Run[Tx]) Token() int64 { return r.token }

// OnLeaseEnd says what becomes of an outside call of which nobody knows whether
// it was done, and that has no Reconcile.
type OnLeaseEnd int

const (
	// Park leaves the operation to a person or to the provider's news: it is
	// unknown, and never executed again by itself. The default.
	Park OnLeaseEnd = iota
	// TakeOver calls again, with the same provider key. Only for a provider that
	// honours it for as long as attempts may go on.
	TakeOver
)

// Outside describes an outside call.
type Outside[T any] struct {
	// Step names the recovery point: stable, unique in its operation, at most
	// 128 bytes. Required.
	Step string
	// Lease is how long the call may take, and how long others wait for it if
	// its process dies. Default: that of the Stages; its bounds hold.
	Lease time.Duration
	// OnLeaseEnd says what becomes of it when its outcome is unknown.
	OnLeaseEnd OnLeaseEnd
	// Reconcile asks the provider what became of the call with this key, before
	// anything else is done about it: nil means that it was done, with this
	// result; [Reject] that it was refused for good; [NotDone] that it was not
	// done, so that it is made. Any other error leaves it unknown for now.
	Reconcile func(ctx context.Context, providerKey string) (T, error)
}

// Local is a step in this database: fn's writes and the recovery point are
// committed together, if the worker still has the operation. A step that was done
// before gives its stored result, and fn does not run.
//
// fn is bound by what [Do] says of functions. Its error rolls back and is
// returned. Errors: [ErrStale], [ErrUnknown], [holdfast.ErrInvalid],
// [holdfast.ErrRetry], [holdfast.ErrTxLost], fn's.
func Local[Tx, T any](ctx context.Context, r *Run[Tx], step string, fn func(ctx context.Context, tx Tx) (T, error)) (value T, err error) {
	row, err := r.enter(ctx, step)
	if err != nil {
		return value, err
	}
	if row != nil {
		return stored[T](r, step, row)
	}
	ctx, cancel := context.WithDeadlineCause(ctx, r.until.Add(-r.lease/10), fmt.Errorf("idempotency: step %q: the lease ends: %w", step, context.DeadlineExceeded))
	defer cancel()
	start := time.Now()
	err = r.rows.write(ctx, func(ctx context.Context, tx Tx, q core.Querier) (err error) {
		if err := r.rows.own(ctx, q, r, step, "", modeTakeOver, r.lease); err != nil {
			return err
		}
		if row, err = r.rows.step(ctx, q, r.hash, step); err != nil || row != nil {
			return err // by a commit that was in doubt
		}
		v, err := fn(ctx, tx)
		if err != nil {
			return &funcError{err}
		}
		b, err := r.rows.pack(r.hash, v)
		if err != nil {
			return err
		}
		value = v
		_, err = r.rows.sql.stepInsert.Exec(ctx, q, r.hash[:], step, stepDone, "", b, r.token)
		return err
	})
	if err != nil {
		return value, r.note(err)
	}
	r.until = start.Add(r.lease)
	if row != nil {
		return stored[T](r, step, row)
	}
	return value, nil
}

// Call is a step outside this database: fn calls a provider with an idempotency
// key that is the same in every attempt. Before it, the step is committed as
// begun, so that a crash leaves a trace; after it, its result is.
//
// fn's ctx ends before the lease does. fn's error decides: [Reject] means that the
// provider refused for good, which is stored as the step's answer; [NotDone] that
// it did nothing; any other leaves the outcome unknown, and Call returns a
// *[StepError] (it is tried again) or a *[ParkedError]. Run cannot overrule that.
//
// Errors: *[Rejection], those two, [ErrStale], [ErrUnknown] of the database,
// [holdfast.ErrInvalid].
func Call[Tx, T any](ctx context.Context, r *Run[Tx], step Outside[T], fn func(ctx context.Context, providerKey string) (T, error)) (value T, err error) {
	if step.Lease == 0 {
		step.Lease = r.lease
	}
	if err := checkLease("Outside.Lease", step.Lease); err != nil {
		return value, err
	}
	mode := modePark
	switch {
	case step.Reconcile != nil:
		mode = modeReconcile
	case step.OnLeaseEnd == TakeOver:
		mode = modeTakeOver
	}
	row, err := r.enter(ctx, step.Step)
	if err != nil {
		return value, err
	}
	if row != nil && row.state != stepBegun && row.state != stepNotDone {
		return stored[T](r, step.Step, row)
	}
	key := r.format.derive(r.hash, step.Step)
	row, doubt, err := r.begin(ctx, step.Step, key, mode, step.Lease)
	if err != nil {
		return value, err
	}
	if row != nil {
		return stored[T](r, step.Step, row)
	}
	if doubt && mode == modePark {
		return parkAt[T](ctx, r, step.Step, "an outside call was begun, and it is not known whether it was done")
	}
	call := fn
	if doubt && mode == modeReconcile {
		call = func(ctx context.Context, key string) (T, error) {
			v, err := step.Reconcile(ctx, key)
			var not *notDoneError
			if !errors.As(err, &not) {
				return v, err
			}
			return fn(ctx, key)
		}
	}
	outside, cancel := context.WithDeadlineCause(ctx, r.until.Add(-step.Lease/10), fmt.Errorf("idempotency: step %q: the lease ends: %w", step.Step, context.DeadlineExceeded))
	value, err = call(outside, key)
	cancel()
	return settle(ctx, r, step.Step, mode, value, err)
}

// settle writes down what an outside call came to.
func settle[Tx, T any](ctx context.Context, r *Run[Tx], step string, mode int, value T, err error) (T, error) {
	var zero T
	var rej *Rejection
	var not *notDoneError
	state, answer := stepDone, any(value)
	switch {
	case err == nil:
	case errors.As(err, &rej):
		state, answer = stepRejected, rej
	case errors.As(err, &not):
		state, answer = stepNotDone, nil
	case mode == modePark:
		return parkAt[T](ctx, r, step, cut("the outside call gave no definite answer: "+err.Error(), maxReason))
	default:
		r.open = &StepError{Step: step, Err: err}
		return zero, r.open
	}
	row, e := r.end(ctx, step, state, answer)
	switch {
	case e != nil && errors.Is(e, ErrStale):
		return zero, e
	case e != nil: // it is known here and not written there
		r.open = &StepError{Step: step, Err: e}
		return zero, r.open
	case row != nil:
		return stored[T](r, step, row)
	}
	if err != nil {
		return zero, err
	}
	return value, nil
}

// enter is before every step: it finds the answer of one that has ended.
func (r *Run[Tx]) enter(ctx context.Context, step string) (*stepRow, error) {
	if err := checkName("step", step, false); err != nil {
		return nil, err
	}
	switch {
	case r.over != nil:
		return nil, r.over
	case r.open != nil:
		return nil, r.open
	case r.used[step]:
		return nil, invalid("step", fmt.Sprintf("%q was used before in this operation: a step has a name of its own", step))
	case r.caller.Err() != nil:
		r.stopped = true
		return nil, context.Cause(r.caller) //nolint:contextcheck // it is the caller's that ended
	}
	r.used[step] = true
	row, err := r.rows.step(ctx, r.rows.store.access.Pool, r.hash, step)
	return row, r.rows.explain(err)
}

// begin commits that the outside call is about to be made. row is the answer of
// a step that was settled meanwhile; doubt: it was begun before.
func (r *Run[Tx]) begin(ctx context.Context, step, key string, mode int, lease time.Duration) (row *stepRow, doubt bool, err error) {
	start := time.Now()
	err = r.rows.write(ctx, func(ctx context.Context, _ Tx, q core.Querier) (err error) {
		if err := r.rows.own(ctx, q, r, step, step, mode, lease); err != nil {
			return err
		}
		if row, err = r.rows.step(ctx, q, r.hash, step); err != nil {
			return err
		}
		switch {
		case row == nil:
			doubt = r.restored && mode == modeReconcile // it may have been begun in what was lost
			_, err = r.rows.sql.stepInsert.Exec(ctx, q, r.hash[:], step, stepBegun, key, nil, r.token)
			return err
		case row.state == stepDone || row.state == stepRejected:
			return r.rows.own(ctx, q, r, step, "", modeTakeOver, r.lease)
		}
		// A step is begun once in a run, so with this token it was by a commit
		// that was in doubt; and that run of this function may have found another's.
		doubt = row.state == stepBegun && (row.token != r.token || doubt) || r.restored && mode == modeReconcile
		row = nil
		_, err = r.rows.sql.stepBegin.Exec(ctx, q, r.hash[:], step, r.token)
		return err
	})
	if err == nil {
		r.until = start.Add(lease)
	}
	return row, doubt, r.note(err)
}

// end commits the answer of an outside call; row is one that was there before.
func (r *Run[Tx]) end(ctx context.Context, step string, state int, answer any) (row *stepRow, err error) {
	var b []byte
	if answer != nil {
		if b, err = r.rows.pack(r.hash, answer); err != nil {
			return nil, err
		}
	}
	start := time.Now()
	err = r.rows.write(ctx, func(ctx context.Context, _ Tx, q core.Querier) error {
		if err := r.rows.own(ctx, q, r, step, "", modeTakeOver, r.lease); err != nil {
			return err
		}
		res, err := r.rows.sql.stepEnd.Exec(ctx, q, r.hash[:], step, state, nullable(b))
		if err != nil || res.Affected == 1 {
			return err
		}
		row, err = r.rows.step(ctx, q, r.hash, step)
		if err == nil && row != nil && row.state == stepNotDone {
			row = nil
		}
		return err
	})
	if err == nil {
		r.until = start.Add(r.lease)
	}
	return row, r.note(err)
}

// park ends the attempt: the operation is unknown. row is the step's answer, if
// it is known meanwhile; then nothing is parked.
func (r *Run[Tx]) park(ctx context.Context, step, reason string) (row *stepRow, err error) {
	row, err = r.rows.park(ctx, r, step, reason)
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
		return stored[T](r, step, row)
	}
	return value, err
}

// note remembers that the operation is lost.
func (r *Run[Tx]) note(err error) error {
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

// stored is the answer of a step that ended before.
func stored[T, Tx any](r *Run[Tx], step string, row *stepRow) (value T, err error) {
	switch row.state {
	case stepDone:
		err = r.rows.unpack(r.hash, row.result, &value)
		return value, err
	case stepRejected:
		var rej Rejection
		if err := r.rows.unpack(r.hash, row.result, &rej); err != nil {
			return value, err
		}
		return value, &rej
	}
	return value, invalid("step", fmt.Sprintf("%q was an outside call before and is a local one now: give it another name", step))
}
