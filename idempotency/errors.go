package idempotency

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/errcode"
	"github.com/holdfast-go/holdfast/internal/trace"
)

var (
	// ErrInProgress means that another call held the key and had not ended when the wait was over.
	// Call again later with the same key.
	ErrInProgress = errcode.New("in-progress", "idempotency: in progress")

	// ErrMismatch means that the key was used before with another request. Nothing was executed
	// for this request.
	ErrMismatch = errcode.New("key-mismatch", "idempotency: the key belongs to another request")

	// ErrExpired means that the operation ended (it was executed, or rejected if ExpiredError.Rejected),
	// and its result is no longer kept. It is not executed again. An *ExpiredError says what is still known.
	ErrExpired = errcode.New("result-expired", "idempotency: done, result gone")

	// ErrUnknown means that it is not yet known whether the operation was executed. It is
	// holdfast.ErrUnknown. Call again with the same key.
	ErrUnknown = holdfast.ErrUnknown

	// ErrTooMany means that the owner has used too many new keys ([Options].MaxNew, MaxRecords). Nothing
	// was executed. Call again later with the same key: a *TooManyError says when.
	ErrTooMany = errcode.New("too-many-new-keys", "idempotency: too many new keys of one owner")

	// ErrNested means that a function used the key that it runs under.
	ErrNested = once.ErrNested
)

var _ = once.Outcomes(ErrInProgress, ErrMismatch, ErrExpired, ErrTooMany, ErrSimilar, ErrTooLate, errResult)

// InnerError is the error of a call whose function failed with the outcome of another operation: an
// error of a call in the function that is or wraps [ErrInProgress], [ErrMismatch], [ErrExpired],
// [ErrUnknown], [ErrTooMany], [ErrSimilar], [ErrTooLate], a *[ResultError] or a *[Rejection]. The outer operation rolled back and its key is free.
// errors.Is and errors.As do not find those outcomes in an InnerError, because they would say that the
// outer operation is done, unknown or rejected. They find everything else in it. The field Err is the
// error that the function returned. To reject the outer operation too, return a new error of [Reject].
type InnerError struct {
	// Err is the error that the function returned.
	Err error
}

func (e *InnerError) Error() string { return (*once.InnerError)(e).Error() }

// Is finds errors in Err that are not outcomes of operations.
func (e *InnerError) Is(target error) bool { return (*once.InnerError)(e).Is(target) }

// As finds errors in Err that are neither outcomes of operations nor verdicts.
func (e *InnerError) As(target any) bool { return (*once.InnerError)(e).As(target) }

var _ = once.PublicInner(func(e *once.InnerError) error { return (*InnerError)(e) })

var _ = errcode.Type[*InnerError]("inner-outcome")

// InProgressError says how long the call waited. errors.Is(err, ErrInProgress) holds.
type InProgressError struct {
	// Waited is 0 with NoWait.
	Waited time.Duration
	// Blockers are the sessions that had the key, or waited for it before this call, when the wait was
	// over. It is empty with NoWait, if another call of this store had asked for the key first, if the
	// engine does not tell ([holdfast.Capabilities].NamesBlockers), if the role may not ask
	// (docs/reference/idempotency.md), and if the pool had no connection free for the question. For a business
	// row, and on MySQL and MariaDB, it is empty after a wait of less than LockTimeout too. Staged
	// operations leave it empty: a lease has the key, and no session.
	Blockers []holdfast.Blocker
	// Err is the error that ended the last wait on the database. It may be nil.
	Err error
}

func (e *InProgressError) Error() string {
	return fmt.Sprintf("idempotency: in progress after waiting %v%s: ask again later with the same key", e.Waited.Round(time.Millisecond), core.BlockedBy(e.Blockers))
}

// Is reports whether target is ErrInProgress.
func (e *InProgressError) Is(target error) bool { return target == ErrInProgress }

func (e *InProgressError) Unwrap() error { return e.Err }

// inProgress converts an internal error to its public form.
func inProgress(err error) error {
	if p, is := err.(*once.InProgressError); is { //nolint:errorlint // it is never wrapped
		return (*InProgressError)(p)
	}
	return err
}

// ExpiredError describes an operation whose result is gone. errors.Is(err, ErrExpired) holds.
type ExpiredError struct {
	// BusinessID is the business id of the result; see Identified. It is empty if the result had
	// none, or if it was erased.
	BusinessID string
	// Rejected reports that the operation was rejected and not executed.
	Rejected bool
}

func (e *ExpiredError) Error() string {
	switch {
	case e.Rejected:
		return "idempotency: rejected for good, the reason is no longer kept"
	case e.BusinessID != "":
		return ErrExpired.Error() + " (business id " + strconv.Quote(e.BusinessID) + ")"
	}
	return ErrExpired.Error()
}

// Is reports whether target is ErrExpired.
func (e *ExpiredError) Is(target error) bool { return target == ErrExpired }

// MismatchError holds both fingerprints or, for a business row, the columns that differ.
// errors.Is(err, ErrMismatch) holds.
type MismatchError struct {
	// Stored is the fingerprint of the first request, Given of this one.
	Stored, Given []byte
	// Columns are the names of the columns of a business row that differ. Values are left out
	// because they may be personal.
	Columns []string
}

func (e *MismatchError) Error() string {
	if len(e.Columns) > 0 {
		return fmt.Sprintf("idempotency: the row's key belongs to another request: columns %v differ", e.Columns)
	}
	return fmt.Sprintf("idempotency: the key belongs to another request (fingerprint %.8x, this one has %.8x): use a key per intent", e.Stored, e.Given)
}

// Is reports whether target is ErrMismatch.
func (e *MismatchError) Is(target error) bool { return target == ErrMismatch }

var _ = errcode.Type[*UnfinishedError]("claim-unfinished")

// UnfinishedError reports a committed claim without a result. The function ran DDL (which commits
// on MySQL and MariaDB) or committed the transaction, and then did not finish. Its effects may be
// committed. The operation is not run again; a person must resolve it. errors.Is(err, ErrUnknown)
// holds.
type UnfinishedError struct{}

func (*UnfinishedError) Error() string {
	return "idempotency: outcome unknown: the key was claimed and committed without a result (DDL or a commit inside the function?): check the effects, then resolve the record"
}

// TraceOutcome names the outcome in spans and metrics: a person has to act.
func (*UnfinishedError) TraceOutcome() string { return trace.Unfinished }

// Is reports whether target is ErrUnknown.
func (*UnfinishedError) Is(target error) bool { return target == ErrUnknown }

var (
	_ = errcode.Type[*Rejection]("rejected")
	_ = once.Verdict[*Rejection]()
)

// Rejection is a final refusal, made by Reject. It is stored as the operation's result and
// returned to every duplicate. If a rejection could not be stored (the context ended, or storing
// it failed), the call returns another error, in which errors.As finds no *Rejection.
type Rejection struct {
	// Code is for programs, Message for people. Both are stored.
	Code    string `json:"code"`
	Message string `json:"message"`
	// Detail is additional data to store with the rejection, such as the response that was sent.
	// It must be JSON; nil for none.
	Detail json.RawMessage `json:"detail,omitempty"`
}

func (r *Rejection) Error() string { return "rejected: " + r.Code + ": " + r.Message }

// Reject returns the error with which a function refuses for good: the function's writes are
// rolled back and the rejection is stored. Any other error rolls back and leaves the key free, so
// that the call can be tried again. An error with a *[Rejection] that a call in the function returned is not
// a refusal of the function's own: see [InnerError]. A *Rejection that the function takes out of such an
// error with errors.As, and returns, is.
func Reject(code, message string) error { return &Rejection{Code: code, Message: message} }
