package idempotency

import (
	"errors"
	"fmt"
)

var (
	// ErrStale means that a worker of a staged operation has lost it: its lease
	// had ended, and another worker took over, or it was parked or resolved. What
	// the worker wanted to write was refused.
	ErrStale = errors.New("idempotency: the operation is another worker's now")

	// ErrState means that an operation's state does not allow what was asked.
	ErrState = errors.New("idempotency: not possible in this state")

	// ErrNotFound means that there is no such operation.
	ErrNotFound = errors.New("idempotency: no such operation")
)

// StaleError says what a worker was refused. errors.Is(err, ErrStale) holds.
type StaleError struct {
	// Step is what it wanted to write; empty for the end of the operation.
	Step string
	// Token is the worker's, Current the operation's.
	Token, Current int64
	// State is the operation's state now.
	State State
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("idempotency: step %q: this worker's token is %d, the operation (%v) is at %d: its lease ended; nothing was written, ask again with the same key", e.Step, e.Token, e.State, e.Current)
}

// Is reports whether target is ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// StepError is an outside call of which nobody knows yet whether it was done.
// The completer, or the next call with the same key, goes on as the step
// declares: it calls again with the same provider key, or asks Reconcile.
// errors.Is(err, ErrUnknown) holds.
type StepError struct {
	Step string
	// Err is what came instead of an answer.
	Err error
}

func (e *StepError) Error() string {
	return fmt.Sprintf("idempotency: step %q: outcome unknown for now (ask again with the same key): %v", e.Step, e.Err)
}

// Is reports whether target is ErrUnknown.
func (e *StepError) Is(target error) bool { return target == ErrUnknown }

func (e *StepError) Unwrap() error { return e.Err }

// ParkedError is an operation that waits for a person, a reconciler or the
// provider's news: see [Operators.Resolve] and [Store.News]. It is not executed
// again by itself. errors.Is(err, ErrUnknown) holds.
type ParkedError struct {
	// Step is the one whose outcome is unknown; empty when none has begun.
	Step string
	// Reason says why it was parked.
	Reason string
}

func (e *ParkedError) Error() string {
	return fmt.Sprintf("idempotency: outcome unknown: parked at step %q (%s): find out what happened, then resolve it", e.Step, e.Reason)
}

// Is reports whether target is ErrUnknown.
func (e *ParkedError) Is(target error) bool { return target == ErrUnknown }

// StateError names the state that is in the way. errors.Is(err, ErrState) holds.
type StateError struct {
	// Action was asked for, State is the operation's, or the step's if Step is named.
	Action string
	Step   string
	State  State
	// Hint says what to do.
	Hint string
}

func (e *StateError) Error() string {
	what := "operation"
	if e.Step != "" {
		what = fmt.Sprintf("step %q", e.Step)
	}
	return fmt.Sprintf("idempotency: %s: the %s is %v: %s", e.Action, what, e.State, e.Hint)
}

// Is reports whether target is ErrState.
func (e *StateError) Is(target error) bool { return target == ErrState }

// notDoneError marks an error of an outside call that surely did nothing.
type notDoneError struct{ err error }

func (e *notDoneError) Error() string { return e.err.Error() }
func (e *notDoneError) Unwrap() error { return e.err }

// NotDone marks err, with which an outside call failed, as proof that the
// provider did nothing: the connection was refused, or the provider says so.
// The step may be called again whatever it declares. An error without this mark,
// a timeout for instance, leaves the outcome unknown.
func NotDone(err error) error {
	if err == nil {
		return nil
	}
	return &notDoneError{err}
}
