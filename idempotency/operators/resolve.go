package operators

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/inside"
	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/auditlog"
	"github.com/holdfast-go/holdfast/internal/core"
)

func check(who holdfast.Actor) error { return auditlog.Check("Actor.", who.By, who.Reason) }

// Resolution is an operator's finding about an operation whose outcome was unknown. Set exactly
// one of Step, Resume, Succeed, Reject and Free.
type Resolution struct {
	// Token is the [staged.Operation].Token with which the operation was seen. If it has gone on since, and is unknown once
	// more, the finding is about an earlier call: Resolve returns [staged.ErrState]. Default: whatever is there.
	Token int64

	// Step is the outcome of the external call at which the operation is parked (StepDone with
	// StepResult, StepRejected with Rejection, StepNotDone). The operation then continues from
	// there. Staged only.
	Step staged.StepOutcome
	// StepResult is the value that the step's function would have returned, of that type, or JSON
	// as a json.RawMessage. [staged.Step].ResultType describes the type. A value that does not
	// decode as that type is refused, unless the type is "any". If a stored result turns out to be
	// unreadable, the operation is parked at the step once more; until a later step has begun,
	// StepDone replaces the result.
	StepResult any
	Rejection  *idempotency.Rejection

	// Resume continues a staged operation that is parked at no step (its attempts were used up, or
	// the database was restored), or at a step whose result its program could not read. A begun
	// step cannot be resumed; use Step instead.
	Resume bool

	// Succeed ends the operation with Result, Reject with Rejection. A staged operation's Result
	// is checked as StepResult is, by [staged.Operation].ResultType; it is final.
	Succeed bool
	Result  any
	Reject  bool

	// Free deletes the record of a Do that committed without a result, so that the key may be
	// executed again. Use it only if none of the effects were committed.
	Free bool
}

func (r *Resolution) check() error {
	n := 0
	for _, is := range []bool{r.Step != staged.NoOutcome, r.Resume, r.Succeed, r.Reject, r.Free} {
		if is {
			n++
		}
	}
	switch {
	case r.Step < staged.NoOutcome || r.Step >= staged.StepReversed:
		return once.Invalid("Resolution.Step", "is not StepDone, StepRejected or StepNotDone")
	case n != 1:
		return once.Invalid("Resolution", "set exactly one of Step, Resume, Succeed, Reject and Free")
	case (r.Reject || r.Step == staged.StepRejected) != (r.Rejection != nil):
		return once.Invalid("Resolution.Rejection", "goes with Reject or with StepRejected, and with nothing else")
	}
	return nil
}

// moved reports whether an operation with this token is not as it was seen.
func (r *Resolution) moved(token int64) bool { return r.Token != 0 && r.Token != token }

const movedHint = "it has gone on since it was seen, and is unknown again: look at it once more"

func (r *Resolution) action() string {
	switch {
	case r.Resume:
		return "resume"
	case r.Succeed:
		return "resolve as succeeded"
	case r.Reject:
		return "resolve as rejected"
	case r.Free:
		return "free the key"
	}
	return [...]string{staged.StepDone: "resolve step as done", staged.StepRejected: "resolve step as rejected", staged.StepNotDone: "resolve step as not done"}[r.Step]
}

// Resolve ends or continues an operation whose outcome is unknown, and records the actor and the
// reason in the same transaction, with the operation and in the audit (package audit). Final states do not change: they return [staged.ErrState], as
// does a resolution that does not fit the operation.
//
// Errors: [staged.ErrState], [staged.ErrNotFound], [idempotency.ErrUnknown],
// [holdfast.ErrInvalid], also for a result of another type, errors of the driver.
func (o *Operators[Tx]) Resolve(ctx context.Context, ref staged.Ref, r Resolution, who holdfast.Actor) error {
	if err := once.FirstOf(r.check(), once.FirstOf(check(who), o.staged.CheckRef(ref))); err != nil {
		return err
	}
	return o.resolve(ctx, o.staged.ID(ref), r, who)
}

func (o *Operators[Tx]) resolve(ctx context.Context, id once.ID, r Resolution, who holdfast.Actor) error {
	return o.intervene(ctx, id, r.action(), who, o.unknownRecord, func(ctx context.Context, q core.Querier, record bool) error {
		if record {
			return o.resolveRecord(ctx, q, id, r)
		}
		row, err := o.ledger.Touch(ctx, q, id)
		if errors.Is(err, staged.ErrNotFound) {
			return o.resolveRecord(ctx, q, id, r)
		}
		if err != nil {
			return err
		}
		switch {
		case row.State != ledger.Parked:
			return &staged.StateError{Action: r.action(), State: idempotency.State(row.Seen()), Hint: "only what is unknown can be resolved"}
		case r.moved(row.Token):
			return &staged.StateError{Action: r.action(), Step: row.Step, State: idempotency.StateUnknown, Hint: movedHint}
		case r.Free:
			return &staged.StateError{Action: r.action(), State: idempotency.StateUnknown, Hint: "a staged operation keeps its key: resolve its step, or reject it"}
		case r.Resume && row.Step != "" && row.Mode != ledger.ModeCorrect:
			return &staged.StateError{Action: r.action(), Step: row.Step, State: staged.Begun, Hint: "say what became of it: set Resolution.Step"}
		case r.Step != staged.NoOutcome && row.Step == "":
			return &staged.StateError{Action: r.action(), State: idempotency.StateUnknown, Hint: "it is parked at no step (its reason says why): set Resume, Succeed or Reject"}
		case r.Step != staged.NoOutcome:
			return o.staged.ResolveStep(ctx, q, id, row, r.action(), "Resolution.StepResult", r.Step, r.StepResult, r.Rejection)
		case r.Resume:
			_, err = o.ledger.SQL.Unpark.Exec(ctx, q, id.Args()...)
			return err
		}
		state, b, err := o.final(id, row, r)
		if err == nil {
			_, err = o.ledger.SQL.Closing.Exec(ctx, q, id.Args(append([]any{state, b}, inside.Of(o.store).Lives()...)...)...)
		}
		return err
	})
}

func (o *Operators[Tx]) final(id once.ID, row *ledger.Row, r Resolution) (int, []byte, error) {
	if r.Reject {
		b, err := o.staged.PackRejection(id, r.Rejection)
		return ledger.Rejected, b, err
	}
	b, err := o.staged.PackAs(id, row.ResultType, "Resolution.Result", r.Result)
	return ledger.Succeeded, b, err
}

// resolveRecord ends a claim of Do that was committed without a result.
func (o *Operators[Tx]) resolveRecord(ctx context.Context, q core.Querier, id once.ID, r Resolution) error {
	state, token, err := o.recordState(ctx, q, id)
	if err != nil {
		return err
	}
	switch {
	case state != idempotency.StateUnknown:
		return &staged.StateError{Action: r.action(), State: state, Hint: "only what is unknown can be resolved"}
	case r.moved(token):
		return &staged.StateError{Action: r.action(), State: state, Hint: movedHint}
	case r.Resume || r.Step != staged.NoOutcome:
		return &staged.StateError{Action: r.action(), State: idempotency.StateUnknown, Hint: "it is no staged operation: set Succeed, Reject or Free"}
	case r.Free:
		_, err = o.sql.free.Exec(ctx, q, id.Args()...)
		return err
	}
	in := inside.Of(o.store)
	v, final, at, lives := r.Result, ledger.Succeeded, once.RecordResult, in.Lives()
	if r.Reject {
		v, final, at, lives = r.Rejection, ledger.Rejected, once.RecordRejection, in.RefusedLives()
	}
	form, stored, err := in.Encode(id.Hash, once.Place{ValueKind: at}, v)
	if err == nil {
		_, err = o.sql.end.Exec(ctx, q, id.Args(append([]any{final, stored, form}, lives...)...)...)
	}
	return err
}

func (o *Operators[Tx]) recordState(ctx context.Context, q core.Querier, id once.ID) (state idempotency.State, token int64, err error) {
	found, err := o.sql.touch.QueryRow(ctx, q, []any{&state, &token}, id.Args()...)
	if err == nil && !found {
		err = staged.ErrNotFound
	}
	return state, token, err
}

// unknownRecord reports whether what is unknown is a record of Do, and not the staged operation that its function has
// started under the same name and key.
func (o *Operators[Tx]) unknownRecord(ctx context.Context, q core.Querier, id once.ID) (bool, error) {
	row, err := o.ledger.Touch(ctx, q, id)
	if err == nil && row.State == ledger.Parked {
		return false, nil
	} else if err != nil && !errors.Is(err, staged.ErrNotFound) {
		return false, err
	}
	state, _, err := o.recordState(ctx, q, id)
	if errors.Is(err, staged.ErrNotFound) {
		return false, nil
	}
	return state == idempotency.StateUnknown, err
}

// whole is for interventions in all that has the name and the key.
func whole(context.Context, core.Querier, once.ID) (bool, error) { return false, nil }

// intervene runs f and records it, in one transaction. isRecord reports whether f is about the record of Do, also if
// there is a staged operation.
func (o *Operators[Tx]) intervene(ctx context.Context, id once.ID, action string, who holdfast.Actor, isRecord func(context.Context, core.Querier, once.ID) (bool, error), f func(ctx context.Context, q core.Querier, record bool) error) error {
	nonce := once.RandomID()
	audit := auditlog.New(o.ledger.Access.Dialect, o.ledger.Access.Table)
	sent := false
	return o.ledger.Write(ctx, func(ctx context.Context, _ Tx, q core.Querier) error {
		if sent {
			if done, err := o.recorded(ctx, q, id, nonce); err != nil || done {
				return err
			}
		}
		record, err := isRecord(ctx, q, id)
		if err != nil {
			return err
		}
		before, kind, err := o.audited(ctx, q, id, record)
		if err != nil {
			return err
		}
		if err := f(ctx, q, record); err != nil {
			return err
		}
		sent = true
		namespace := o.store.Options().Namespace
		if _, err := o.ledger.SQL.Intervene.Exec(ctx, q, id.Owner, nonce, id.Hash[:], namespace, action, who.By, who.Reason); err != nil {
			return err
		}
		after, _, err := o.audited(ctx, q, id, record)
		if err != nil {
			return err
		}
		return audit.Append(ctx, q, auditlog.Entry{
			Actor: who.By, Action: action, Reason: who.Reason, Kind: kind, Owner: id.Owner, Namespace: namespace, Subject: id.Hash[:],
			Before: before, After: after,
		})
	})
}

// auditState is the state of an operation in the audit. It has nothing that Erase deletes.
type auditState struct {
	State string `json:"state"`
	Step  string `json:"step,omitempty"`
	Token int64  `json:"token,omitempty"`
}

// audited locks the row of an operation, or of the record of Do beside it, and returns its state.
func (o *Operators[Tx]) audited(ctx context.Context, q core.Querier, id once.ID, record bool) (is auditState, kind string, err error) {
	row, err := o.ledger.Touch(ctx, q, id)
	switch {
	case err == nil && !record:
		return auditState{idempotency.State(row.Seen()).String(), row.Step, row.Token}, "staged", nil
	case err != nil && !errors.Is(err, staged.ErrNotFound):
		return is, "", err
	}
	state, _, err := o.recordState(ctx, q, id)
	if errors.Is(err, staged.ErrNotFound) {
		return auditState{State: "none"}, "record", nil
	}
	return auditState{State: state.String()}, "record", err
}

// recorded finds an intervention whose commit is ambiguous: it waits for the rows that the
// ambiguous transaction has locked, then reads.
func (o *Operators[Tx]) recorded(ctx context.Context, q core.Querier, id once.ID, nonce []byte) (bool, error) {
	if _, err := o.ledger.SQL.Touch.Exec(ctx, q, id.Args()...); err != nil {
		return false, err
	}
	if _, _, err := o.recordState(ctx, q, id); err != nil && !errors.Is(err, staged.ErrNotFound) {
		return false, err
	}
	var one int
	return o.ledger.SQL.Intervened.QueryRow(ctx, q, []any{&one}, id.Owner, nonce)
}

// Erase deletes the request, the results of the operation and of its steps, and the bodies and kinds of
// its events. The key stays, so the operation is not executed again; duplicates get
// [idempotency.ErrExpired]. Only an operation that has ended can be erased: otherwise Erase
// returns [staged.ErrState]. Interventions stay, and so does the key's text: do not derive keys
// from data that must be erased. Of an operation that a function of Do has started under its own name and
// key, Erase erases the record of Do too.
//
// Errors: [staged.ErrState], [staged.ErrNotFound], [idempotency.ErrUnknown],
// [holdfast.ErrInvalid], errors of the driver.
func (o *Operators[Tx]) Erase(ctx context.Context, ref staged.Ref, who holdfast.Actor) error {
	if err := once.FirstOf(check(who), o.staged.CheckRef(ref)); err != nil {
		return err
	}
	id := o.staged.ID(ref)
	const hint = "only what has ended, and was not erased before, can be erased: resolve it first"
	return o.intervene(ctx, id, "erase", who, whole, func(ctx context.Context, q core.Querier, _ bool) error {
		op, err := o.eraseStaged(ctx, q, id)
		var record erasable
		if err == nil && !op.open() {
			record, err = o.eraseRecord(ctx, q, id)
		}
		switch {
		case err != nil || op.erased || record.erased:
			return err
		case op.state == idempotency.StateAbsent && record.state == idempotency.StateAbsent:
			return staged.ErrNotFound
		}
		return &staged.StateError{Action: "erase", State: max(op.state, record.state), Hint: hint}
	})
}

// erasable is what Erase has found in one of the tables: StateAbsent for nothing.
type erasable struct {
	state  idempotency.State
	erased bool
}

// open reports whether it has not ended.
func (e erasable) open() bool {
	return !e.erased && e.state != idempotency.StateAbsent && e.state != idempotency.StateSucceededExpired && e.state != idempotency.StateRejectedExpired
}

func (o *Operators[Tx]) eraseStaged(ctx context.Context, q core.Querier, id once.ID) (e erasable, err error) {
	row, err := o.ledger.Touch(ctx, q, id)
	if errors.Is(err, staged.ErrNotFound) {
		return e, nil
	} else if err == nil {
		e.state = idempotency.State(row.Seen())
		e.erased, err = o.ledger.Erase(ctx, q, id)
	}
	return e, err
}

func (o *Operators[Tx]) eraseRecord(ctx context.Context, q core.Querier, id once.ID) (e erasable, err error) {
	if e.state, _, err = o.recordState(ctx, q, id); errors.Is(err, staged.ErrNotFound) {
		return erasable{}, nil
	} else if err == nil {
		var res core.Result
		res, err = o.sql.erase.Exec(ctx, q, id.Args()...)
		e.erased = res.Affected == 1
	}
	return e, err
}
