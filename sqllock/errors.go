package sqllock

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

var (
	// ErrHeld means that another caller holds the lock.
	ErrHeld = keeper.ErrHeld

	// ErrLost means that a term has ended: its trust window ended before a renewal was
	// committed, the lock was granted again, or the lock was taken away.
	ErrLost = keeper.ErrLost

	// ErrReleased is the cause with which Release ends a lease's context.
	ErrReleased = keeper.ErrReleased

	// ErrClosed means that the Locker was closed.
	ErrClosed = keeper.ErrClosed

	// ErrOtherStore means that a term belongs to other tables than those that check it, or that
	// holdfast after-restore has since given these tables another identity.
	ErrOtherStore = keeper.ErrOtherStore
)

// HeldError names the holder of a lock. errors.Is(err, ErrHeld) holds.
type HeldError struct {
	Key string
	// Holder is the holder's name, as in Options.Holder. Token is its fencing token. Both are
	// empty if the lock's row could not be read.
	Holder string
	Token  int64
	// Remaining is the time until the lock expires, unless it is renewed. It is 0 when nobody holds
	// the lock and it could not be had all the same: a guarded transaction still has the row of one
	// that has expired, or the statement gave way to others, for example of another node, too often.
	Remaining time.Duration
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("sqllock: lock %.40q is held by %.80q for %v more: try later, or wait for it", e.Key, e.Holder, e.Remaining.Round(time.Millisecond))
}

// Is reports whether target is ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// LostError says which term has ended. errors.Is(err, ErrLost) holds.
type LostError struct {
	// Key and Token name the term.
	Key   string
	Token int64
	// Reason says how the end was detected.
	Reason string
	// Err is the last error of the term's renewal, or nil.
	Err error
}

func (e *LostError) Error() string { return (*keeper.LostError)(e).Error() }

// Is reports whether target is ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

func (e *LostError) Unwrap() error { return e.Err }

var _ = keeper.PublicLost(
	func(e *keeper.LostError) error { return (*LostError)(e) },
	func(err error) *keeper.LostError {
		var lost *LostError
		errors.As(err, &lost)
		return (*keeper.LostError)(lost)
	})
