package limits

import (
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/errcode"
	"github.com/holdfast-go/holdfast/internal/trace"
)

var (
	// ErrExceeded means that an amount does not fit into its limit, or that a new limit is below what is
	// used.
	ErrExceeded = errcode.New("limit-exceeded", "limits: the limit would be exceeded")

	// ErrNotFound means that there is no such limit, or no reservation with this id.
	ErrNotFound = errcode.New("limit-not-found", "limits: not found")

	// ErrMismatch means that the id was used before for something else.
	ErrMismatch = errcode.New("limit-mismatch", "limits: the id was used for something else")

	// ErrExpired means that the reservation was not captured in time.
	ErrExpired = errcode.New("reservation-expired", "limits: the reservation has expired")

	// ErrVoided means that the reservation was voided.
	ErrVoided = errcode.New("reservation-voided", "limits: the reservation was voided")

	// ErrCaptured means that the reservation was captured, so that it cannot be voided.
	ErrCaptured = errcode.New("reservation-captured", "limits: the reservation was captured")
)

// ExceededError says what is left of a limit. errors.Is(err, ErrExceeded) holds.
type ExceededError struct {
	// Key is the limit's key. It is not part of the error's text, because it may be personal data.
	Key string
	// Limit, Reserved and Captured are the row's values. Of Set, Limit is the new limit.
	Limit, Reserved, Captured int64
	// Asked is the amount that does not fit. It is 0 for Set.
	Asked int64
	// Available is what would have fit: Limit less Reserved and Captured. It is below 0 for Set.
	Available int64
}

func (e *ExceededError) Error() string {
	if e.Asked == 0 {
		return fmt.Sprintf("limits: a limit of %d is below what is used: %d are captured and %d reserved: void reservations first, or set a higher limit", e.Limit, e.Captured, e.Reserved)
	}
	return fmt.Sprintf("limits: %d do not fit: of the limit of %d, %d are captured and %d reserved, and %d are available", e.Asked, e.Limit, e.Captured, e.Reserved, e.Available)
}

// Is reports whether target is ErrExceeded.
func (e *ExceededError) Is(target error) bool { return target == ErrExceeded }

// NotFoundError says what does not exist. errors.Is(err, ErrNotFound) holds.
type NotFoundError struct {
	// Key is the limit's key. ID is the id of the entry, or "" if the limit does not exist. Neither is
	// part of the error's text.
	Key, ID string
}

func (e *NotFoundError) Error() string {
	if e.ID == "" {
		return "limits: the limit does not exist: create it with Set, or insert the row of your own table"
	}
	return "limits: nothing was reserved under this id: reserve it first"
}

// Is reports whether target is ErrNotFound.
func (e *NotFoundError) Is(target error) bool { return target == ErrNotFound }

// MismatchError says how a call differs from the first one with its id. errors.Is(err, ErrMismatch)
// holds.
type MismatchError struct {
	// Found is the entry of the id. It is not part of the error's text.
	Found Entry
	// Problem says what differs.
	Problem string
}

func (e *MismatchError) Error() string {
	return "limits: the id was used before: " + e.Problem + ": use a new id for something new, and the same arguments for the same"
}

// Is reports whether target is ErrMismatch.
func (e *MismatchError) Is(target error) bool { return target == ErrMismatch }

// EndedError says how a reservation ended. errors.Is(err, ErrExpired), ErrVoided or ErrCaptured holds.
type EndedError struct {
	// Entry is the reservation. It is not part of the error's text.
	Entry Entry
}

func (e *EndedError) Error() string {
	switch e.Entry.State {
	case Captured:
		return "limits: the reservation was captured already: take a captured amount back with a movement of your own"
	case Voided:
		return "limits: the reservation was voided already: reserve again with a new id"
	default:
		return "limits: the reservation has expired and no longer counts: reserve again with a new id"
	}
}

// Is reports whether target is the error of the state.
func (e *EndedError) Is(target error) bool {
	switch e.Entry.State {
	case Captured:
		return target == ErrCaptured
	case Voided:
		return target == ErrVoided
	default:
		return target == ErrExpired
	}
}

// errCounters means that a program wrote to the counters past this package, or to the entries.
var errCounters = errors.New("limits: the counters of the limit are not the sums of its entries: another program has changed them, so nothing was written")

var refusals = []error{ErrExceeded, ErrNotFound, ErrMismatch, ErrExpired, ErrVoided, ErrCaptured}

// isRefusal reports whether err is a decision after which the transaction goes on.
func isRefusal(err error) bool {
	for _, r := range refusals {
		if errors.Is(err, r) {
			return true
		}
	}
	return false
}

// outcome names the refusals for tracers.
func outcome(err error) string {
	switch {
	case errors.Is(err, ErrExceeded):
		return trace.Rejected
	case errors.Is(err, ErrNotFound):
		return trace.NotFound
	case errors.Is(err, ErrMismatch):
		return trace.Mismatch
	case errors.Is(err, ErrExpired):
		return trace.Expired
	case errors.Is(err, ErrVoided), errors.Is(err, ErrCaptured):
		return trace.Conflict
	}
	return ""
}

func invalid(field, problem string) error {
	return &holdfast.InputError{Field: field, Problem: problem}
}
