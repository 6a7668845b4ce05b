package staged

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/options"
)

// Run is one worker's attempt at a staged operation. Use it only in the goroutine of Workflow.Run.
type Run[Tx any] struct {
	rows     *rows[Tx]
	caller   context.Context
	id       once.ID
	attempt  []byte
	token    int64
	restored bool
	lease    time.Duration
	until    time.Time
	format   KeyFormat
	used     map[string]bool
	stopped  bool  // stopped between steps, because the caller's context ended
	over     error // why nothing more may be written
	tried    bool  // an external call, or its Reconcile, ran
	blocked  error // the database's, before a function of a step ran
	open     *StepError
	again    time.Duration // what the call, or its Reconcile, asked for with AskAgain
	at       *calling      // an external call whose outcome is not stored
	unknown  bool          // the outcome of a commit of this attempt is unknown
}

// maxSettles is the longest time until the deadline of Accepted.
const maxSettles = 10 * 365 * 24 * time.Hour

// Token returns the fencing token, which rises with every worker that takes the operation. Pass it
// to systems that can compare it; Holdfast fences this database's rows without it.
func (r *Run[Tx]) Token() int64 { return r.token }

// OnLeaseEnd says what to do with an external call whose outcome is unknown and that has no
// Reconcile.
type OnLeaseEnd int

const (
	// Park leaves the operation to a person or to the provider's events: its outcome is unknown,
	// and it is never executed again automatically. The default.
	Park OnLeaseEnd = iota
	// TakeOver calls again, with the same provider key. Use it only for a provider that honours
	// the key for as long as attempts may continue.
	TakeOver
)

// ExternalCall describes a call to the outside world. T is the type of its result. A result that a
// provider event or an operator gives instead is checked against T. If a program cannot read the
// stored result, for example after a change of T, the operation is parked (see
// Resolution.StepResult of package operators).
type ExternalCall[T any] struct {
	// Step names the recovery point: stable, unique in its operation, at most 128 bytes. Required.
	Step string
	// Provider names whom fn calls, such as "stripe"; at most 64 bytes. It distinguishes the
	// references of providers: see SetReference, Accepted and ProviderEvent.
	Provider string
	// Lease is how long other workers wait if the call's process dies. Default: that of the
	// Workflow; its bounds apply.
	Lease time.Duration
	// Timeout is how long the call may take: 1 ms to 30 days. If it is longer than the lease, the
	// lease is renewed while fn runs and this process lives; a process that is dead, or stopped,
	// loses the operation after the lease. Default: nine tenths of the Lease, which is not renewed.
	Timeout time.Duration
	// OnLeaseEnd says what to do if the outcome is unknown.
	OnLeaseEnd OnLeaseEnd
	// Reconcile queries the provider about the call with this key, before anything else is done
	// about it. A nil error means that the call was executed, with this result;
	// [idempotency.Reject] means that it was refused for good; [NotDone] means that it was not
	// executed and will not be, so that it is made; [Accepted] means that it is not settled yet;
	// [AskAgain] means that the answer is not known yet. Any other error leaves it unknown for now,
	// and counts as a failed attempt. It is also asked when the deadline of an accepted call has
	// passed.
	//
	// "Not found" is not "not done": the request may still be on its way to the provider, or within
	// it. Return AskAgain for it until [CallAge] exceeds the time that the slowest execution takes,
	// and NotDone only after that, or if the provider honours the key.
	Reconcile func(ctx context.Context, providerKey string) (T, error)
}

// Local is a step in this database: fn's writes and the recovery point are committed together, if
// the worker still has the operation. If the step was done before, Local returns its stored
// result, and fn does not run. The first attempt gets the result as it decodes, too: see
// [idempotency.Do].
//
// fn follows the rules of the function of [idempotency.Do]. An error of fn rolls back and is
// returned. Errors: [ErrStale], [idempotency.ErrUnknown], [holdfast.ErrInvalid],
// [holdfast.ErrRetry], [holdfast.ErrTxLost], errors of fn.
func Local[Tx, T any](ctx context.Context, r *Run[Tx], step string, fn func(ctx context.Context, tx Tx) (T, error)) (value T, err error) {
	row, err := r.enter(ctx, step)
	if err != nil {
		return value, err
	}
	if row != nil {
		return stored[T](ctx, r, step, row)
	}
	outer := ctx
	ctx, cancel := context.WithDeadlineCause(ctx, r.until.Add(-r.lease/10), fmt.Errorf("idempotency: step %q: the lease ends: %w", step, context.DeadlineExceeded))
	defer cancel()
	start, ran := time.Now(), false
	err = r.rows.Write(ctx, func(ctx context.Context, tx Tx, q core.Querier) (err error) {
		if err := r.rows.own(ctx, q, r, step, "", ledger.ModeTakeOver, r.lease); err != nil {
			return err
		}
		if row, err = r.rows.Step(ctx, q, r.id, step); err != nil || row != nil {
			return err // done by an earlier, ambiguous commit
		}
		ran = true
		v, err := fn(ctx, tx)
		if err != nil {
			return &once.FuncError{Err: once.Inner(r.rows.Access.Explain(err))}
		}
		b, err := packed(r.rows, r.id, ofStep(step, false), v, &value)
		if err != nil {
			return err
		}
		_, err = r.rows.SQL.StepInsert.Exec(ctx, q, r.id.Args(step, ledger.StepDone, "", b, r.token, resultType[T]())...)
		return err
	})
	if err != nil {
		if !ran {
			r.blocked = err
		}
		return value, r.note(err)
	}
	r.until = start.Add(r.lease)
	if row != nil {
		return stored[T](outer, r, step, row)
	}
	return value, nil
}

// Call is a step outside this database: fn calls a provider with an idempotency key that is the
// same in every attempt. Before the call, the step is committed as begun, so that a crash leaves a
// trace. After the call, its result is committed.
//
// fn's ctx ends before the lease does. fn's error decides the outcome. [idempotency.Reject] means
// that the provider refused for good, which is stored as the step's result. [NotDone] means that
// it did nothing, and will do nothing. [Accepted] means that the provider settles it later: the attempt ends with an
// *[AcceptedError], and goes on when an event or the deadline comes. Any other error leaves the
// outcome unknown, and Call returns a *[StepError] (it is tried again) or a *[ParkedError]. Run
// cannot overrule that.
//
// net/http sends a POST with the header Idempotency-Key a second time, within one call of http.Client.Do, when a
// kept connection dies. Unless the provider honours keys, use idemhttp.SendOnce.
//
// Errors: *[idempotency.Rejection], those three, [ErrStale], [idempotency.ErrUnknown] of the
// database, [holdfast.ErrInvalid].
func Call[Tx, T any](ctx context.Context, r *Run[Tx], step ExternalCall[T], fn func(ctx context.Context, providerKey string) (T, error)) (value T, err error) {
	if step.Lease == 0 {
		step.Lease = r.lease
	}
	if err := step.check(); err != nil {
		return value, err
	}
	mode := ledger.ModePark
	switch {
	case step.Reconcile != nil:
		mode = ledger.ModeReconcile
	case step.OnLeaseEnd == TakeOver:
		mode = ledger.ModeTakeOver
	}
	row, err := r.enter(ctx, step.Step)
	if err != nil {
		return value, err
	}
	if row != nil && row.State != ledger.StepBegun && row.State != ledger.StepNotDone && row.State != ledger.StepAccepted {
		return stored[T](ctx, r, step.Step, row)
	}
	key := r.format.derive(r.id.Hash, step.Step)
	at := &calling{step: step.Step, provider: step.Provider, key: key, mode: mode}
	row, ambiguous, err := r.begin(ctx, at, step.Lease, resultType[T](), false)
	if err != nil {
		return value, err
	}
	if row != nil {
		return stored[T](ctx, r, step.Step, row)
	}
	if ambiguous && mode == ledger.ModePark {
		return parkAt[T](ctx, r, step.Step, "an outside call was begun, and it is not known whether it was done")
	}
	if ambiguous && mode == ledger.ModeReconcile {
		value, err = calls(ctx, r, at, &step, step.Reconcile)
		var not *notDoneError
		if !once.Decides(err, &not) {
			return settle(ctx, r, at, value, once.Inner(err))
		}
		row, _, err = r.begin(ctx, at, step.Lease, resultType[T](), true)
		if err != nil {
			return value, err
		}
		if row != nil {
			return stored[T](ctx, r, step.Step, row)
		}
	}
	value, err = calls(ctx, r, at, &step, fn)
	return settle(ctx, r, at, value, once.Inner(err))
}

// calls runs the function of an external call, or its Reconcile, within the lease.
func calls[Tx, T any](ctx context.Context, r *Run[Tx], at *calling, step *ExternalCall[T], f func(context.Context, string) (T, error)) (T, error) {
	outside, end := r.during(context.WithValue(ctx, callingKey{}, at), step.Step, step.Lease, step.Timeout)
	defer end()
	r.at, r.tried = at, true
	return f(outside, at.key)
}

func (c *ExternalCall[T]) check() error {
	if once.Cut(c.Provider, maxProvider) != c.Provider {
		return once.Invalid("ExternalCall.Provider", fmt.Sprintf("is not at most %d bytes of UTF-8 without NUL", maxProvider))
	}
	return once.FirstOf(options.Lease.Check("ExternalCall.Lease", c.Lease), options.Call.Check("ExternalCall.Timeout", c.Timeout))
}

// calling is an external call in progress.
type calling struct {
	step, provider, key, reference string
	mode                           int
	age                            time.Duration // since the last call began
	attempt                        time.Time     // when age was read
}

// settle stores the outcome of an external call.
func settle[Tx, T any](ctx context.Context, r *Run[Tx], at *calling, value T, err error) (T, error) {
	var zero T
	step := at.step
	var rej *idempotency.Rejection
	var not *notDoneError
	var later *acceptedError
	var again *askAgainError
	state, answer := ledger.StepDone, []byte(nil)
	var e error
	switch {
	case err == nil:
		answer, e = packed(r.rows, r.id, ofStep(step, false), value, &value)
	case once.Decides(err, &rej):
		state = ledger.StepRejected
		answer, e = r.rows.pack(r.id, ofStep(step, true), rej)
	case once.Decides(err, &not):
		state = ledger.StepNotDone
	case once.Decides(err, &later):
		return settlesLater[T](ctx, r, at, later)
	case once.Decides(err, &again) && at.mode != ledger.ModePark:
		if err = again.check(); err == nil {
			err, r.again = again, again.after
		}
		r.open = &StepError{Step: step, Err: err}
		return zero, r.open
	case at.mode == ledger.ModePark:
		return parkAt[T](ctx, r, step, once.Cut("the outside call gave no definite answer: "+err.Error(), maxReason))
	default:
		r.open = &StepError{Step: step, Err: err}
		return zero, r.open
	}
	var row *ledger.StepRow
	if e == nil {
		row, e = r.end(ctx, at, state, answer, rej)
	}
	switch {
	case r.over != nil: // it is another worker's, or the answer contradicts an event
		return zero, r.over
	case e != nil: // the outcome is known here but could not be stored
		r.open = &StepError{Step: step, Err: e}
		return zero, r.open
	case row != nil:
		return stored[T](ctx, r, step, row)
	}
	if err != nil {
		return zero, err
	}
	return value, nil
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
	case r.used[step]:
		return nil, once.Invalid("step", fmt.Sprintf("%q was used before in this operation: a step has a name of its own", step))
	case r.caller.Err() != nil:
		r.stopped = true
		return nil, context.Cause(r.caller) //nolint:contextcheck // it is the caller's that ended
	}
	r.used[step] = true
	row, err := r.rows.Step(ctx, r.rows.Access.Pool, r.id, step)
	if err != nil {
		err = r.rows.Explain(err)
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
	err = r.rows.Write(ctx, func(ctx context.Context, _ Tx, q core.Querier) (err error) {
		if err := r.rows.own(ctx, q, r, step, step, mode, lease); err != nil {
			return err
		}
		if row, err = r.rows.Step(ctx, q, r.id, step); err != nil {
			return err
		}
		switch {
		case row == nil:
			ambiguous = r.restored && mode == ledger.ModeReconcile // it may have been begun in the lost time
			_, err = r.rows.SQL.StepInsert.Exec(ctx, q, r.id.Args(step, ledger.StepBegun, at.key, nil, r.token, resultType)...)
			return err
		case row.State == ledger.StepDone || row.State == ledger.StepRejected:
			return r.rows.own(ctx, q, r, step, "", ledger.ModeTakeOver, r.lease)
		}
		// A run begins a step once. If the token is this run's, the earlier begin was its own
		// ambiguous commit, and ambiguous keeps what that execution of this function found.
		open := row.State == ledger.StepBegun || row.State == ledger.StepAccepted
		ambiguous = open && (row.Token != r.token || ambiguous) || r.restored && mode == ledger.ModeReconcile
		if !anew {
			at.age, at.attempt = time.Duration(row.Age)*time.Microsecond, time.Now()
		}
		row = nil
		_, err = r.rows.SQL.StepBegin.Exec(ctx, q, r.id.Args(step, r.token, resultType, first)...)
		return err
	})
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
	torn := "" // why the operation was parked
	err = r.rows.Write(ctx, func(ctx context.Context, _ Tx, q core.Querier) error {
		if err := r.rows.own(ctx, q, r, step, "", ledger.ModeTakeOver, r.lease); err != nil {
			if now, e := r.rows.Read(ctx, q, r.id); torn != "" && e == nil && now != nil && now.Reason == torn {
				return nil // parked by an earlier, ambiguous commit
			}
			return err
		}
		torn = ""
		res, err := r.rows.SQL.StepEnd.Exec(ctx, q, r.id.Args(append([]any{step, state, once.Nullable(answer)}, at.names()...)...)...)
		if err != nil || res.Affected == 1 {
			return err
		}
		if row, err = r.rows.Step(ctx, q, r.id, step); err == nil {
			err = r.rows.refer(ctx, q, r)
		}
		switch {
		case err != nil || row == nil:
			return err
		case row.State == ledger.StepNotDone:
			row = nil
		case state != ledger.StepNotDone && contradicts(row.State, state):
			torn = once.Cut(r.rows.contradiction(r.id, step, row, "the call", state, rej), maxReason)
			return r.rows.tear(ctx, q, r.id, step, torn)
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
