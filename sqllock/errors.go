package sqllock

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
)

var (
	// ErrHeld means that somebody else has the lock.
	ErrHeld = errors.New("sqllock: held")

	// ErrLost means that a term has ended: its trust window ran out before a
	// renewal was committed, or somebody else was granted the lock, or it was
	// taken away.
	ErrLost = errors.New("sqllock: lease lost")

	// ErrReleased is the cause with which a lease's context ends at its release.
	ErrReleased = errors.New("sqllock: lease released")

	// ErrClosed means that the Locker was closed.
	ErrClosed = errors.New("sqllock: closed")

	// ErrOtherStore means that a term was granted by other tables than those
	// in which it was to be checked.
	ErrOtherStore = errors.New("sqllock: the term belongs to another store")
)

// HeldError says who has the lock. errors.Is(err, ErrHeld) holds.
type HeldError struct {
	Key string
	// Holder is the name of whoever has it, as in Options.Holder; Token is the
	// fencing token. They are empty where the lock could not be looked at.
	Holder string
	Token  int64
	// Remaining is the time until its expiry, unless it is renewed. It is 0
	// where the lock has expired but a guarded transaction still holds it.
	Remaining time.Duration
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("sqllock: lock %.40q is held by %.80q for %v more: try later, or wait with Acquire", e.Key, e.Holder, e.Remaining.Round(time.Millisecond))
}

// Is reports whether target is ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// LostError says which term has ended. errors.Is(err, ErrLost) holds.
type LostError struct {
	Key   string
	Token int64
	// Reason is what showed it.
	Reason string
	// Err is the last error of its renewal; it may be nil.
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

func invalid(field, problem string) error {
	return &holdfast.InputError{Field: field, Problem: problem}
}
