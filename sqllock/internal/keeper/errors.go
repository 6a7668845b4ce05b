package keeper

import (
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
)

// The errors of package sqllock and of its subpackages.
var (
	ErrHeld       = errors.New("sqllock: held")
	ErrLost       = errors.New("sqllock: lease lost")
	ErrReleased   = errors.New("sqllock: lease released")
	ErrClosed     = errors.New("sqllock: closed")
	ErrOtherStore = errors.New("sqllock: the term belongs to another store")
	ErrNested     = errors.New("fairlock: the lock is held by the context that asks for it")
	ErrCapacity   = errors.New("fairlock: another capacity")
)

// LostError is sqllock.LostError.
type LostError struct {
	Key   string
	Token int64
	// Reason says how the end of the term was detected.
	Reason string
	// Err is the last error of the term's renewal; it may be nil.
	Err error
}

func (e *LostError) Error() string {
	text := fmt.Sprintf("sqllock: the lease on %.40q with token %d is lost: %s", e.Key, e.Token, e.Reason)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Is reports whether target is ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

func (e *LostError) Unwrap() error { return e.Err }

// Invalid returns the error of a bad argument.
func Invalid(field, problem string) error {
	return &holdfast.InputError{Field: field, Problem: problem}
}
