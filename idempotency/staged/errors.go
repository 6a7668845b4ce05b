package staged

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/errcode"
	"github.com/holdfast-go/holdfast/internal/trace"
)

var (
	// ErrStale means that a worker of a staged operation has lost it: its lease had ended and
	// another worker took over, or the operation was parked or resolved. The worker's write was
	// refused.
	ErrStale = ledger.ErrStale

	// ErrState means that the state of the operation does not allow the action.
	ErrState = ledger.ErrState

	// ErrInTx means that a function that runs within a transaction tried to start or continue a
	// staged operation.
	ErrInTx = errcode.New("staged-in-transaction", "staged: a staged operation within a transaction: begin it there with StartTx")

	// ErrNotFound means that there is no such operation.
	ErrNotFound = ledger.ErrNotFound
)

// StaleError describes the write that was refused. errors.Is(err, ErrStale) holds.
type StaleError struct {
	// Step is the step of the refused write; empty for the end of the operation.
	Step string
	// Token is the worker's token, Current the operation's.
	Token, Current int64
	// State is the operation's present state.
	State idempotency.State
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("staged: step %q: this worker's token is %d, the operation (%v) is at %d: its lease ended; nothing was written, ask again with the same key", e.Step, e.Token, e.State, e.Current)
}

// Is reports whether target is ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// InTxError refuses a staged operation that was called with the context of a function within a
// transaction: of [idempotency.Do], [idempotency.DoTx], businessrow's Table.Do, [Local],
// [HandleEvent] or InTx of a DB, also behind HTTP middleware. The operation could wait for rows
// that the transaction has locked, or call the outside world for work that is then rolled back.
// Nothing was done. errors.Is(err, ErrInTx) holds.
type InTxError struct {
	// Operation is the name of the Workflow.
	Operation string
}

func (e *InTxError) Error() string {
	return fmt.Sprintf("staged: the staged operation %q was called within a transaction: begin it there with StartTx, which commits it with the transaction, or call Do once the transaction has ended, with a context from outside of it", e.Operation)
}

// Is reports whether target is ErrInTx.
func (e *InTxError) Is(target error) bool { return target == ErrInTx }

var _ = errcode.Type[*StepError]("step-unknown")

// StepError reports an external call whose outcome is unknown for now. The completer, or the next
// call with the same key, continues as the step declares: it calls again with the same provider
// key, or runs Reconcile. errors.Is(err, ErrUnknown) holds.
type StepError struct {
	Step string
	// Err is the error that the call returned.
	Err error
}

func (e *StepError) Error() string {
	return fmt.Sprintf("staged: step %q: outcome unknown for now (ask again with the same key): %v", e.Step, e.Err)
}

// Is reports whether target is ErrUnknown.
func (e *StepError) Is(target error) bool { return target == idempotency.ErrUnknown }

func (e *StepError) Unwrap() error { return e.Err }

// TraceOutcome names the outcome in spans and metrics: no person has to act.
func (e *StepError) TraceOutcome() string { return trace.Retrying }

var _ = errcode.Type[*ParkedError]("operation-parked")

// ParkedError reports an operation whose outcome is unknown and that is not run again
// automatically. It waits for a person (Resolve in package operators) or for a provider event
// ([HandleEvent]). errors.Is(err, ErrUnknown) holds.
type ParkedError struct {
	// Step is the step whose outcome is unknown; empty if none has begun.
	Step string
	// Reason says why the operation was parked.
	Reason string
}

func (e *ParkedError) Error() string {
	return fmt.Sprintf("staged: outcome unknown: parked at step %q (%s): find out what happened, then resolve it", e.Step, e.Reason)
}

// Is reports whether target is ErrUnknown.
func (e *ParkedError) Is(target error) bool { return target == idempotency.ErrUnknown }

// TraceOutcome names the outcome in spans and metrics.
func (e *ParkedError) TraceOutcome() string { return trace.Parked }

var _ = errcode.Type[*AcceptedError]("step-accepted")

// AcceptedError reports an operation that waits for a provider: the provider has accepted the call of
// a step and settles it later. An event ([HandleEvent]) continues it; past the deadline the step is
// reconciled, called again or parked, as its [ExternalCall] says. errors.Is(err, ErrInProgress)
// holds.
type AcceptedError struct {
	// Step is the step that is not settled.
	Step string
	// Left is the time until the deadline.
	Left time.Duration
}

func (e *AcceptedError) Error() string {
	return fmt.Sprintf("staged: step %q: accepted by the provider, which settles it within %v", e.Step, e.Left.Round(time.Millisecond))
}

// Is reports whether target is ErrInProgress.
func (e *AcceptedError) Is(target error) bool { return target == idempotency.ErrInProgress }

// TraceOutcome names the outcome in spans and metrics.
func (e *AcceptedError) TraceOutcome() string { return trace.Settling }

// StateError describes a state that does not allow an action. errors.Is(err, ErrState) holds.
type StateError struct {
	// Action is the refused action.
	Action string
	Step   string
	// State is the idempotency.State of the operation or, if Step is set, the StepState of the step.
	State fmt.Stringer
	// Hint says what to do.
	Hint string
}

func (e *StateError) Error() string {
	what := "operation"
	if e.Step != "" {
		what = fmt.Sprintf("step %q", e.Step)
	}
	return fmt.Sprintf("staged: %s: the %s is %v: %s", e.Action, what, e.State, e.Hint)
}

// Is reports whether target is ErrState.
func (e *StateError) Is(target error) bool { return target == ErrState }

var (
	_ = once.Verdict[*notDoneError]()
	_ = once.Verdict[*acceptedError]()
	_ = once.Verdict[*askAgainError]()
)

// notDoneError marks the error of an external call that certainly did nothing.
type notDoneError struct{ err error }

func (e *notDoneError) Error() string { return e.err.Error() }
func (e *notDoneError) Unwrap() error { return e.err }

// NotDone marks err, the error of an external call, as proof that the provider did nothing and will
// do nothing: the connection was refused, or the provider says so. The step may then be called
// again, regardless of its OnLeaseEnd. An error without this mark, for example a timeout, leaves
// the outcome unknown.
//
// It is no answer that stays: the next attempt makes the call again. So every later step of this
// attempt is refused with err. To go another way instead, such as a second provider, return
// [idempotency.Reject] from the call: a refusal is stored.
//
// A lookup that finds nothing is no such proof: a request that is on its way is executed later, and
// a second one pays twice. It becomes a proof if the provider honours the key, so that the second
// request is the first one's duplicate, or after the slowest execution has surely ended: see
// [AskAgain] and [CallAge].
func NotDone(err error) error {
	if err == nil {
		return nil
	}
	return &notDoneError{err}
}
