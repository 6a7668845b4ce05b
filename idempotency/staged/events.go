package staged

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/inside"
	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/core"
)

// maxEventID and maxEventKind bound ProviderEvent, in bytes.
const (
	maxEventID   = 255
	maxEventKind = 128
)

// ProviderEvent is a message from a provider about an operation: a webhook, or a line of a
// settlement report.
type ProviderEvent struct {
	// ID is the provider's id of this event. Each ID is handled once. 1 to 255 bytes. Required.
	ID string
	// Kind is the provider's kind of event, such as "refund.failed"; at most 128 bytes. It is kept
	// and erased as Body is.
	Kind string
	// Body is stored with the operation until that is erased, and not at all afterwards; at most
	// Options.MaxResult.
	Body []byte

	// ProviderKey identifies the operation by the key that the provider was given, if the provider
	// repeats that key. Reference identifies it by the provider's own name for the call, such as
	// "re_1Nispe2eZ" (see SetReference and Accepted), with the Provider of its ExternalCall and
	// the owner Ref.Owner. Otherwise set Ref. With a ProviderKey, Reference is kept with the step if
	// that has none, and Provider too, if it is given.
	ProviderKey         string
	Provider, Reference string
	Ref                 Ref

	// Outcome is what the event says about an external call that has begun and whose end is not
	// known, or that the provider had accepted. Default: nothing. If it is set, an operation that
	// was parked or waits at that step continues. StepReversed is about a call that was executed.
	//
	// An Outcome that contradicts the known answer (rejected, or not done, after done; done after
	// rejected) does not replace it. The event is stored, fn runs, and Operation.Contradicted is
	// true. An operation that has not ended is parked until an operator decides: later events do
	// not. An operation that has ended keeps its state and its result. If an operator has ended it
	// without an answer of the call, the step gets the answer of the event, and
	// Operation.Contradicted says whether the operator was wrong.
	Outcome StepOutcome
	// Step is the step of the call. Default: the step that ProviderKey or Reference belongs to.
	Step string
	// Result is the step's result for StepDone: the value that its function would have returned,
	// of that type, or JSON as a json.RawMessage. A value that the function could not have
	// returned is refused before anything is stored. The exception is a type that decodes its own
	// JSON (json.Unmarshaler): then it is refused only when the program reads it. Rejection is the
	// result for StepRejected.
	Result    any
	Rejection *idempotency.Rejection
}

// StepOutcome is what a provider event, or an operator, says about an external call.
type StepOutcome int

// The outcomes of an external call.
const (
	NoOutcome StepOutcome = iota
	// StepDone: the call was executed, with a result.
	StepDone
	// StepRejected: the provider refused the call for good.
	StepRejected
	// StepNotDone: the call was not executed and will not be. It may be made again.
	StepNotDone
	// StepReversed: the call was executed, and was taken back later: a refund that the bank
	// returned, a charge that was disputed. Only for ProviderEvent. It is a new fact: the step and
	// the operation keep their results, and show when they were first reversed (Step.Reversed,
	// Operation.Reversed). Book its consequences in the function of HandleEvent.
	StepReversed
)

// HandleEvent stores a provider event once for each ID, in one transaction with fn. fn may be nil.
// It books the consequences of the event, even if the operation ended long ago: a refund can fail
// after its success. If the event is stored already, isNew is false and fn does not run. What must happen
// once belongs in fn: after a commit that was lost or rolled back, two deliveries may be told that
// their event is new.
//
// fn follows the rules of the function of [idempotency.Do]. If it ends its transaction itself, what it
// did may be committed, or a part of it: each later delivery is [ErrState], until somebody has looked
// and calls HandleEvent for the event without fn.
//
// Errors: [ErrNotFound], [ErrState] if the event is about a step that has not begun, reverses one that
// is not known to be done, or says "not done" while a worker makes the call or after a refusal. After
// both, answer the provider with an error, so that it delivers the event again: it may have overtaken
// the answer of the call, or the event before it. Other errors:
// [idempotency.ErrUnknown], [holdfast.ErrInvalid], also for a Result of another type, errors of
// fn.
func HandleEvent[Tx any](ctx context.Context, store *idempotency.Store[Tx], e ProviderEvent, fn func(ctx context.Context, tx Tx, op Operation) error) (isNew bool, err error) {
	ctx, span := once.StartSpan(ctx, inside.Of(store).Access().Trace, "staged.event", "")
	defer func() { span.End(err, func(err error) string { return outcomeOfEvent(isNew, err) }) }()
	r := newTransitions(store)
	key, err := r.concerns(ctx, &e)
	if err != nil {
		return false, err
	}
	body, err := r.pack(key, ofEvent(e.ID), e.Body)
	if err != nil {
		return false, err
	}
	sent, torn := false, false // the insert was sent, and its commit may be ambiguous
	err = r.Write(ctx, func(ctx context.Context, tx Tx, q core.Querier) error {
		row, err := r.Touch(ctx, q, key)
		if err != nil {
			return err
		}
		var handled int64
		there, err := r.SQL.EventRead.QueryRow(ctx, q, []any{&handled}, key.Args([]byte(e.ID))...)
		switch {
		case err != nil:
			return err
		case there && handled == 0 && fn != nil:
			return &StateError{Action: fmt.Sprintf("provider event %q", e.ID), State: seen(row), Hint: "its function ended its transaction itself, so that what it did may be committed, or a part of it: find out, mend it, and call HandleEvent without a function"}
		case there && handled == 0:
			return r.handled(ctx, q, key, &e)
		case there:
			isNew = sent
			return nil
		}
		stored, kind := any(body), e.Kind
		if erased(row) {
			stored, kind = nil, "" // it was erased
		}
		insert := r.SQL.EventInsert
		if fn != nil {
			insert = r.SQL.EventBegin
		}
		if _, err := insert.Exec(ctx, q, key.Args([]byte(e.ID), kind, stored)...); err != nil {
			return err
		}
		if torn, err = r.apply(ctx, q, key, row, &e); err != nil {
			return err
		}
		if err := r.hear(ctx, tx, q, key, &e, fn); err != nil {
			return err
		}
		isNew, sent = true, true
		return nil
	})
	if torn && isNew && err == nil {
		r.emitParked(ctx, key)
	}
	return isNew && err == nil, err
}

// hear runs the function of HandleEvent, if there is one. Until it has succeeded, the event is not handled: a
// function that ends its transaction itself may leave a part of its work.
func (s *transitions[Tx]) hear(ctx context.Context, tx Tx, q core.Querier, id once.ID, e *ProviderEvent, fn func(ctx context.Context, tx Tx, op Operation) error) error {
	if fn == nil {
		return nil
	}
	op, err := s.show(ctx, q, id)
	if err != nil {
		return err
	}
	if err := fn(ctx, tx, *op); err != nil {
		return &once.FuncError{Err: once.Inner(s.Access.Explain(err))}
	}
	return s.handled(ctx, q, id, e)
}

// handled notes that an event needs nothing any more.
func (s *transitions[Tx]) handled(ctx context.Context, q core.Querier, id once.ID, e *ProviderEvent) error {
	res, err := s.SQL.EventEnd.Exec(ctx, q, id.Args([]byte(e.ID))...)
	if err == nil && res.Affected != 1 {
		err = holdfast.ErrTxLost // fn has rolled it back
	}
	return err
}

// apply stores what an event says about a step. torn reports that it contradicts the known answer.
func (s *transitions[Tx]) apply(ctx context.Context, q core.Querier, id once.ID, row *ledger.Row, e *ProviderEvent) (torn bool, err error) {
	if e.ProviderKey != "" && e.Reference != "" && !erased(row) {
		_, err = s.SQL.StepRefer.Exec(ctx, q, id.Args(e.Step, orNull(once.Cut(e.Provider, maxProvider)), once.Cut(e.Reference, maxReference), 0)...)
	}
	switch {
	case err != nil || e.Outcome == NoOutcome:
		return false, err
	case e.Outcome == StepReversed:
		return false, s.reverse(ctx, q, id, row, e.Step)
	}
	f := finding{action: fmt.Sprintf("provider event %q", e.ID), event: true, field: "ProviderEvent.Result", step: e.Step, how: e.Outcome, result: e.Result, rejection: e.Rejection}
	err = s.resolveStep(ctx, q, id, row, &f)
	return f.contradicts, err
}

// concerns checks an event and finds its operation, and its step by the provider's key.
func (s *transitions[Tx]) concerns(ctx context.Context, e *ProviderEvent) (id once.ID, err error) {
	o := &s.options
	switch {
	case e.ID == "" || len(e.ID) > maxEventID:
		return id, once.Invalid("ProviderEvent.ID", fmt.Sprintf("has %d bytes, not 1 to %d", len(e.ID), maxEventID))
	case once.Cut(e.Kind, maxEventKind) != e.Kind:
		return id, once.Invalid("ProviderEvent.Kind", fmt.Sprintf("is not at most %d bytes of UTF-8 without NUL", maxEventKind))
	case len(e.Body) > o.MaxResult:
		return id, once.Invalid("ProviderEvent.Body", fmt.Sprintf("has %d bytes, Options.MaxResult is %d", len(e.Body), o.MaxResult))
	case e.Outcome < NoOutcome || e.Outcome > StepReversed:
		return id, once.Invalid("ProviderEvent.Outcome", "is not one of its values")
	case e.Outcome == StepRejected && e.Rejection == nil:
		return id, once.Invalid("ProviderEvent.Rejection", "is missing")
	case e.Outcome == StepReversed && (e.Result != nil || e.Rejection != nil):
		return id, once.Invalid("ProviderEvent.Result", "is given with StepReversed, which keeps the step's result")
	case e.ProviderKey == "" && e.Reference != "":
		return s.refers(ctx, e)
	case e.ProviderKey == "":
		return s.id(e.Ref), s.checkRef(e.Ref)
	}
	var step string
	found, err := s.SQL.StepFind.QueryRow(ctx, s.Access.Pool, []any{&id.Owner, once.Into(&id.Hash), &step}, e.ProviderKey, o.Namespace)
	switch {
	case err != nil:
		return id, s.Explain(err)
	case !found:
		return id, ErrNotFound
	case e.Step == "":
		e.Step = step
	}
	return id, nil
}

// refers finds the operation of an owner, and its step, by the provider's own reference.
func (s *transitions[Tx]) refers(ctx context.Context, e *ProviderEvent) (id once.ID, err error) {
	if err := s.checkRef(Ref{Owner: e.Ref.Owner, Name: "any", Key: "any"}); err != nil {
		return id, err
	}
	id.Owner = e.Ref.Owner
	found, err := s.SQL.ReferenceFind.Query(ctx, s.Access.Pool, id.Owner, e.Provider, e.Reference, s.options.Namespace)
	if err != nil {
		return id, s.Explain(err)
	}
	steps, err := core.Collect(found, func(row core.Row) (name string, err error) {
		err = row.Scan(once.Into(&id.Hash), &name)
		return name, err
	})
	switch {
	case err != nil:
		return id, s.Explain(err)
	case len(steps) == 0:
		return id, ErrNotFound
	case len(steps) > 1:
		return id, once.Invalid("ProviderEvent.Reference", "belongs to more than one step: set ProviderKey, or Ref and Step")
	case e.Step == "":
		e.Step = steps[0]
	}
	return id, nil
}

// id identifies the row of an operation.
func (s *transitions[Tx]) id(ref Ref) once.ID {
	return s.store.ID(ref.Owner, ref.Name, ref.Key)
}

func (s *transitions[Tx]) checkRef(ref Ref) error {
	return s.store.CheckName(ref.Owner, ref.Name, ref.Key)
}

// finding is what an operator, or a provider event, says about an external call.
type finding struct {
	action, field string // the names of the action and of its result in errors
	event         bool   // a provider's
	contradicts   bool   // the known answer; set by resolveStep
	step          string
	how           StepOutcome
	result        any
	rejection     *idempotency.Rejection
}

// state returns the state of the step after the finding.
func (f *finding) state() int {
	switch f.how {
	case StepDone:
		return ledger.StepDone
	case StepRejected:
		return ledger.StepRejected
	}
	return ledger.StepNotDone
}

// resolveStep stores the outcome of an external call, and continues an operation that was parked
// at it. The row is locked. The model is internal/test/model/staged.pml.
func (s *transitions[Tx]) resolveStep(ctx context.Context, q core.Querier, id once.ID, row *ledger.Row, f *finding) error {
	step, err := s.Step(ctx, q, id, f.step)
	if err != nil {
		return err
	}
	state, here := f.state(), row.State == ledger.Parked && row.Step == f.step
	write := s.SQL.StepEnd.Stmt
	args := id.Args(f.step, state)
	switch {
	case step == nil:
		return &StateError{Action: f.action, Step: f.step, State: NotBegun, Hint: "it has not begun: name the step whose outcome is unknown"}
	case here && row.Mode == ledger.ModeContradicted && f.event:
		return nil // it is one more fact: an operator decides
	case here && (row.Mode == ledger.ModeContradicted || row.Mode == ledger.ModeCorrect && step.State == state):
		write = s.SQL.StepCorrect
	case step.State == state && step.State != ledger.StepNotDone: // the outcome is already known
		if !here {
			return nil
		}
		return s.goesOn(ctx, q, id, row, f.step)
	case f.event && contradicts(step.State, state):
		return s.eventAgainst(ctx, q, id, row, step, f)
	case f.event && ended(row) && step.State != ledger.StepDone && step.State != ledger.StepRejected:
		return s.eventAfter(ctx, q, id, row, step, f)
	case step.State == ledger.StepNotDone && state == ledger.StepDone && f.event:
		// It was done after all, and is not called again.
	case step.State != ledger.StepBegun && step.State != ledger.StepAccepted:
		return &StateError{Action: f.action, Step: f.step, State: StepState(step.State), Hint: "its answer is known and does not change"}
	case ended(row):
		return &StateError{Action: f.action, State: seen(row), Hint: "it has ended; final states do not change"}
	case row.State == ledger.Pending && row.Attempt != nil && f.how == StepNotDone:
		return &StateError{Action: f.action, State: seen(row), Hint: "a worker is at it: wait until its lease has ended"}
	}
	b, err := s.answerOf(id, step, f)
	if err != nil {
		return err
	}
	args = append(args, once.Nullable(b))
	if write.Name == s.SQL.StepEnd.Stmt.Name {
		args = append(args, nil, nil) // the provider and its reference stay
	}
	if _, err := write.Exec(ctx, q, args...); err != nil {
		return err
	}
	if f.event && row.State == ledger.Parked && !here && (row.Mode == ledger.ModeContradicted || row.Restored == 1) {
		return nil // it waits for a decision about something else
	}
	return s.goesOn(ctx, q, id, row, f.step)
}

// reverse notes that a step that was done was taken back. The row is locked. A call without an answer was
// done if the operation has succeeded: an operator has found that out.
func (s *transitions[Tx]) reverse(ctx context.Context, q core.Querier, id once.ID, row *ledger.Row, step string) error {
	open := ledger.StepDone
	if succeeded(row) {
		open = ledger.StepBegun
	}
	res, err := s.SQL.StepReverse.Exec(ctx, q, id.Args(step, open)...)
	if err != nil {
		return err
	}
	if res.Affected == 0 {
		state, found := NotBegun, (*ledger.StepRow)(nil)
		if found, err = s.Step(ctx, q, id, step); err != nil {
			return err
		}
		if found != nil {
			if state = StepState(found.State); state == Succeeded {
				return nil // reported before, and the driver counts changed rows
			}
		}
		return &StateError{Action: "provider event", Step: step, State: state, Hint: "only what was done can be taken back: deliver it again later"}
	}
	_, err = s.SQL.Reverse.Exec(ctx, q, id.Args()...)
	return err
}

// answerOf returns the stored form of a finding; nil for a step that was not done.
func (s *transitions[Tx]) answerOf(id once.ID, step *ledger.StepRow, f *finding) ([]byte, error) {
	switch f.how {
	case StepDone:
		return s.packAs(id, ofStep(f.step, false), step.ResultType, f.field, f.result)
	case StepRejected:
		return s.pack(id, ofStep(f.step, true), f.rejection)
	}
	return nil, nil
}

// goesOn continues an operation that is parked at a step whose result is known. If the operation
// is pending, it will not be parked at that step when its lease ends.
func (s *transitions[Tx]) goesOn(ctx context.Context, q core.Querier, id once.ID, row *ledger.Row, name string) (err error) {
	switch row.State {
	case ledger.Parked:
		_, err = s.SQL.Unpark.Exec(ctx, q, id.Args()...)
	case ledger.Pending:
		_, err = s.SQL.Known.Exec(ctx, q, id.Args(name)...)
	}
	return err
}
