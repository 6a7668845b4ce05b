package idempotency

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast"
)

var (
	// ErrInProgress means that another call holds the key and had not ended
	// when the wait for it did. Ask again later with the same key.
	ErrInProgress = errors.New("idempotency: in progress")

	// ErrMismatch means that the key was used before with another request.
	// Nothing was executed for this one.
	ErrMismatch = errors.New("idempotency: the key belongs to another request")

	// ErrExpired means that the operation was done and its result is no
	// longer kept. It is not executed again. An *ExpiredError says what is left.
	ErrExpired = errors.New("idempotency: done, result gone")

	// ErrUnknown means that nobody knows yet whether the operation was done;
	// it is holdfast.ErrUnknown. Ask again with the same key.
	ErrUnknown = holdfast.ErrUnknown

	// ErrNested means that a function asked for the key which it runs under.
	ErrNested = errors.New("idempotency: the function asked for its own key")

	// ErrOtherKey means that a business row was refused by a unique key of its
	// table which is not the claimed one: no replay, but a row in the way.
	ErrOtherKey = errors.New("idempotency: another unique key of the table refused the row")
)

// InProgressError says how long the wait was. errors.Is(err, ErrInProgress) holds.
type InProgressError struct {
	// Waited is 0 when no wait was asked for.
	Waited time.Duration
	// Err is what ended the last wait on the database; it may be nil.
	Err error
}

func (e *InProgressError) Error() string {
	return fmt.Sprintf("idempotency: in progress after waiting %v: ask again later with the same key", e.Waited.Round(time.Millisecond))
}

// Is reports whether target is ErrInProgress.
func (e *InProgressError) Is(target error) bool { return target == ErrInProgress }

func (e *InProgressError) Unwrap() error { return e.Err }

// ExpiredError says what is left of an operation whose result is gone.
// errors.Is(err, ErrExpired) holds.
type ExpiredError struct {
	// BusinessID is what the business calls the result; see Identified. Empty
	// when it had none, or was erased.
	BusinessID string
	// Rejected: the operation was refused for good, and not carried out.
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

// MismatchError holds both fingerprints; of a business row, the columns that
// differ. errors.Is(err, ErrMismatch) holds.
type MismatchError struct {
	// Stored belongs to the request that came first, Given to this one.
	Stored, Given []byte
	// Columns of a business row that differ, by name only: their values may be personal.
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

// UnfinishedError is a committed claim without a result: a function ran DDL
// (which commits on MySQL and MariaDB) or committed by itself, and then did not
// finish. Effects may stand. It is not run again; a person has to look.
// errors.Is(err, ErrUnknown) holds.
type UnfinishedError struct{}

func (*UnfinishedError) Error() string {
	return "idempotency: outcome unknown: the key was claimed and committed without a result (DDL or a commit inside the function?): check the effects, then resolve the record"
}

// Is reports whether target is ErrUnknown.
func (*UnfinishedError) Is(target error) bool { return target == ErrUnknown }

// Rejection is a final refusal, made by Reject: stored as the operation's
// verdict and given to every duplicate.
type Rejection struct {
	// Code is for programs, Message for people. Both are stored.
	Code    string `json:"code"`
	Message string `json:"message"`
	// Detail is what else the caller wants kept with the verdict, such as the
	// answer that was given. It must be JSON; nil for none.
	Detail json.RawMessage `json:"detail,omitempty"`
}

func (r *Rejection) Error() string { return "rejected: " + r.Code + ": " + r.Message }

// Reject makes the error with which a function refuses for good: its writes
// are rolled back and the verdict is kept. Any other error rolls back and
// leaves the key free, so that the call may be tried again.
func Reject(code, message string) error { return &Rejection{Code: code, Message: message} }
