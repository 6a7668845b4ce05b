package staged

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/options"
)

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
	// it. Return AskAgain for it until [CallAge] exceeds the time that the slowest execution takes, this call's
	// Timeout included, and NotDone only after that, or if the provider honours the key.
	Reconcile func(ctx context.Context, providerKey string) (T, error)
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
// kept connection dies. Unless the provider honours keys, use idemclient.SendOnce.
//
// Errors: *[idempotency.Rejection], those three, [ErrStale], [idempotency.ErrUnknown] of the
// database, [holdfast.ErrInvalid].
func Call[T, Tx any](ctx context.Context, r *Run[Tx], step ExternalCall[T], fn func(ctx context.Context, providerKey string) (T, error)) (value T, err error) {
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
	at.again = ambiguous && mode == ledger.ModeTakeOver
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
			return settle(ctx, r, at, value, err)
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
	return settle(ctx, r, at, value, err)
}

// calls runs the function of an external call, or its Reconcile, within the lease.
// The model is internal/test/model/staged.pml.
func calls[T, Tx any](ctx context.Context, r *Run[Tx], at *calling, step *ExternalCall[T], f func(context.Context, string) (T, error)) (T, error) {
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
	again                          bool          // an earlier call may have been, or may yet be, done
	age                            time.Duration // since the last call began
	attempt                        time.Time     // when age was read
}

// names returns the provider and the reference for the step's row. A provider without a name is
// stored with its reference, so that an event finds it.
func (c *calling) names() []any {
	if c.reference == "" {
		return []any{orNull(c.provider), nil}
	}
	return []any{c.provider, once.Cut(c.reference, maxReference)}
}

// settle stores the outcome of an external call.
func settle[T, Tx any](ctx context.Context, r *Run[Tx], at *calling, value T, err error) (T, error) {
	var zero T
	step := at.step
	var rej *idempotency.Rejection
	var not *notDoneError
	var later *acceptedError
	var again *askAgainError
	state, answer := ledger.StepDone, []byte(nil)
	var e error
	if err != nil {
		err = once.Inner(err)
	}
	switch {
	case err == nil:
		answer, e = packed(r.transitions, r.id, ofStep(step, false), value, &value)
	case once.Decides(err, &rej):
		state = ledger.StepRejected
		answer, e = r.transitions.pack(r.id, ofStep(step, true), rej)
	case once.Decides(err, &not) && !at.again:
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
	if state == ledger.StepNotDone {
		r.undone = err // the next attempt calls again
	}
	if err != nil {
		return zero, err
	}
	return value, nil
}
