package keeper

import (
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/errcode"
)

// The errors of package sqllock and of its subpackages.
var (
	ErrHeld       = errcode.New("lock-held", "sqllock: held")
	ErrLost       = errcode.New("lease-lost", "sqllock: lease lost")
	ErrReleased   = errcode.New("lease-released", "sqllock: lease released")
	ErrClosed     = errcode.New("locker-closed", "sqllock: closed")
	ErrOtherStore = errcode.New("other-store", "sqllock: the term belongs to another store")
	ErrNested     = errcode.New("lock-nested", "fairlock: the lock is held by the context that asks for it")
	ErrCapacity   = errcode.New("semaphore-capacity", "fairlock: another capacity")
)

var (
	publicLost = func(e *LostError) error { return e }
	lostIn     = func(err error) (lost *LostError) {
		errors.As(err, &lost)
		return lost
	}
)

// PublicLost is for package sqllock: public makes the public type of a LostError, and in finds one in an error.
func PublicLost(public func(e *LostError) error, in func(err error) *LostError) struct{} {
	publicLost, lostIn = public, in
	return struct{}{}
}

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
