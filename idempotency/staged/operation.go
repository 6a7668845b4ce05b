package staged

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/core"
)

// StepState is the state of a step.
type StepState int

// The states of steps.
const (
	NotBegun StepState = ledger.StepNotDone
	// Begun: the outcome of its call is not known.
	Begun     StepState = ledger.StepBegun
	Succeeded StepState = ledger.StepDone
	Rejected  StepState = ledger.StepRejected
	// Settling: the provider has accepted its call and settles it later.
	Settling StepState = ledger.StepAccepted
)

func (s StepState) String() string {
	return [...]string{"not begun", "begun", "succeeded", "rejected", "settling"}[s]
}

// seen is the state of an operation, as others see it.
func seen(row *ledger.Row) idempotency.State { return idempotency.State(row.Seen()) }

// Ref identifies an operation of the store's namespace.
type Ref struct{ Owner, Name, Key string }

// Operation is the operators' view of an operation, without request and result.
type Operation struct {
	Ref
	// ID identifies the operation's row: 32 bytes and the owner.
	ID []byte
	// Staged distinguishes a staged operation from a record of Do.
	Staged bool
	// State is as Lookup has it, but that a record of [idempotency.Do] in progress is not seen.
	State idempotency.State
	// Step is the step that has begun and whose outcome is not known; empty for none.
	Step string
	// Started and Finished count attempts. Attempts that did not finish crashed.
	Started, Finished int
	// Created and Moved are the times of the first and the last change, by the database's clock.
	Created, Moved time.Time
	// Due is the time until another worker may continue the operation: positive during a lease, a
	// pause, or until the deadline of a settling step; negative if the operation has waited for a
	// worker that long. For operations that are in progress, wait or settle.
	Due time.Duration
	// Token is the fencing token of the last worker that took the operation; it rises when the operation is parked, too. Of a record of Do it is
	// the time of its claim, in µs. So an operation that is unknown again has another one: see operators.Resolution.
	Token int64
	// Reason says why the operation waits or was parked. It may quote an error of a provider.
	Reason string
	// Reversed is when a step that was done was first reported as taken back; zero for never. The
	// result does not change. See StepReversed.
	Reversed time.Time
	// Contradicted means that two answers about a call exclude each other, such as done and
	// rejected: two of the provider, or the decision of an operator and a later event. Reason names
	// them. An operation that had not ended is parked, and an operator decides; one that had ended
	// keeps its result.
	Contradicted bool
	// Restored means that the database was restored to an earlier time while the operation was
	// pending or parked: steps may have been done that are not recorded (operators.AfterRestore).
	Restored bool
	// Holder is the process that has the operation, or had it last. Program is its version of the
	// program: the main module's, with its revision. RequestID is the request or trace for which
	// the operation was begun or last continued (see holdfast.WithRequestID); empty for none. Of a
	// record of Do, they are of the call that executed it; its RequestID goes with the result.
	Holder, Program, RequestID string
	// ResultType describes the JSON of a staged operation's result, such as string or {"cents":
	// int64, "ref": string}. It is "any" if the type decodes its own JSON.
	ResultType string

	// Only Show fills these fields.
	Steps         []Step
	Events        []Event
	Interventions []Intervention
}

// Step is a recovery point of an operation.
type Step struct {
	Name  string
	State StepState
	// ProviderKey is the idempotency key that the provider was given. Use it to look up the call
	// at the provider. Empty for a step in this database.
	ProviderKey string
	// ResultType describes the JSON of the step's result, as in Operation.
	ResultType string
	// Provider and Reference are the provider and its own name for the call (see SetReference and
	// Accepted); empty for none. Deadline is when a settling step is asked about, or parked.
	Provider, Reference string
	Deadline            time.Time
	// Reversed is when the step was first reported as taken back; zero for never.
	Reversed time.Time
	// Starts counts how often the step was begun.
	Starts       int
	Token        int64
	Begun, Moved time.Time
}

// Event is a stored provider event.
type Event struct {
	ID, Kind string
	// Body is nil, and Kind empty, after they were erased.
	Body []byte
	// Received is when it was handled; zero while the function of [HandleEvent] runs, and if that ended its
	// transaction itself: somebody must look what it did.
	Received time.Time
}

// Intervention is an action of an operator.
type Intervention struct {
	Action, By, Reason string
	At                 time.Time
}

// list reads operations, and closes found.
func (s *transitions[Tx]) list(found core.Rows, records bool) ([]Operation, error) {
	return core.Collect(found, func(row core.Row) (Operation, error) { return scanOperation(row, records) })
}

func scanOperation(found core.Row, records bool) (op Operation, err error) {
	var id once.ID
	var key []byte
	var state int
	var resultType string
	var created, moved, due, reversed int64
	var mode, restored int
	if err := found.Scan(&id.Owner, once.Into(&id.Hash), &op.Name, &key, &state, &op.Step, &op.Started, &op.Finished, &created, &moved, &due, &op.Token, &op.Reason, &op.Holder, &resultType, &reversed, &op.Program, &op.RequestID, &mode, &restored); err != nil {
		return op, err
	}
	op.ID, op.Owner = id.Bytes(), id.Owner
	op.Key, op.State, op.Staged = string(key), idempotency.State(state), !records
	if op.Staged {
		op.ResultType = readShape(resultType).String()
	}
	op.Created, op.Moved = time.UnixMicro(created), time.UnixMicro(moved)
	op.Reversed, op.Contradicted = micros(reversed), mode == ledger.ModeContradicted
	op.Restored = restored == 1
	switch op.State {
	case idempotency.StateInProgress, idempotency.StateWaiting, idempotency.StateSettling:
		op.Due = time.Duration(due) * time.Microsecond
	}
	return op, nil
}

// micros returns a time in µs; the zero time for 0.
func micros(at int64) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return time.UnixMicro(at)
}

func (s *transitions[Tx]) show(ctx context.Context, q core.Querier, id once.ID) (*Operation, error) {
	op, err := s.showOne(ctx, q, id, false)
	if err == nil && op == nil {
		op, err = s.showOne(ctx, q, id, true)
	}
	switch {
	case err != nil:
		return nil, err
	case op == nil:
		return nil, ErrNotFound
	}
	return op, s.more(ctx, q, id, op)
}

// showOne returns nil if the table of staged operations, or of records, has no row with this ID.
func (s *transitions[Tx]) showOne(ctx context.Context, q core.Querier, id once.ID, record bool) (*Operation, error) {
	stmt := s.SQL.Show
	if record {
		stmt = s.SQL.RecordShow
	}
	found, err := stmt.Query(ctx, q, id.Args()...)
	if err != nil {
		return nil, s.Explain(err)
	}
	ops, err := s.list(found, record)
	if err != nil || len(ops) == 0 {
		return nil, err
	}
	return &ops[0], nil
}

// showToResolve is show for a person: a record whose outcome is unknown goes before the staged operation that its
// function has started under the same name and key, unless that waits for a person, too.
func (s *transitions[Tx]) showToResolve(ctx context.Context, q core.Querier, id once.ID) (*Operation, error) {
	op, err := s.show(ctx, q, id)
	if err != nil || !op.Staged || op.State == idempotency.StateUnknown {
		return op, err
	}
	record, err := s.showOne(ctx, q, id, true)
	if err != nil || record == nil || record.State != idempotency.StateUnknown {
		return op, err
	}
	return record, s.more(ctx, q, id, record)
}

// more reads the steps, events and interventions of an operation.
func (s *transitions[Tx]) more(ctx context.Context, q core.Querier, id once.ID, op *Operation) (err error) {
	if op.Steps, err = parts(ctx, s, q, s.SQL.Steps, id, scanStep); err != nil {
		return err
	}
	scanEvent := func(row core.Row) (Event, error) { return s.scanEvent(row, id) }
	if op.Events, err = parts(ctx, s, q, s.SQL.EventList, id, scanEvent); err != nil {
		return err
	}
	op.Interventions, err = parts(ctx, s, q, s.SQL.Interventions, id, scanIntervention)
	return err
}

// parts reads the rows that belong to an operation.
func parts[T, Tx any](ctx context.Context, s *transitions[Tx], q core.Querier, stmt core.Stmt, id once.ID, scan func(core.Row) (T, error)) ([]T, error) {
	found, err := stmt.Query(ctx, q, id.Args()...)
	if err != nil {
		return nil, s.Explain(err)
	}
	return core.Collect(found, scan)
}

func scanStep(row core.Row) (st Step, err error) {
	var state int
	var at, moved, deadline, reversed int64
	if err := row.Scan(&st.Name, &state, &st.ProviderKey, &st.Starts, &st.Token, &at, &moved, &st.ResultType, &st.Provider, &st.Reference, &deadline, &reversed); err != nil {
		return st, err
	}
	st.Deadline, st.Reversed = micros(deadline), micros(reversed)
	st.ResultType = readShape(st.ResultType).String()
	st.State, st.Begun, st.Moved = StepState(state), time.UnixMicro(at), time.UnixMicro(moved)
	return st, nil
}

func (s *transitions[Tx]) scanEvent(row core.Row, id once.ID) (event Event, err error) {
	var name, body []byte
	var at int64
	err = row.Scan(&name, &event.Kind, &body, &at)
	if err == nil && body != nil {
		err = s.unpack(id, ofEvent(string(name)), body, &event.Body)
	}
	event.ID, event.Received = string(name), micros(at)
	return event, err
}

func scanIntervention(row core.Row) (i Intervention, err error) {
	var at int64
	err = row.Scan(&i.Action, &i.By, &i.Reason, &at)
	i.At = time.UnixMicro(at)
	return i, err
}
