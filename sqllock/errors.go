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

var (
	// ErrTimeout means that a row lock was not to be had within [AtMost]. The
	// transaction goes on.
	ErrTimeout = errors.New("sqllock: not locked in time")

	// ErrNotNow means that another transaction has a row lock, under [NoWait] or
	// [SkipLocked]. The transaction goes on.
	ErrNotNow = errors.New("sqllock: locked by another transaction")

	// ErrNotFound means that a table has no row with a key. The transaction
	// goes on.
	ErrNotFound = errors.New("sqllock: no row with this key")
)

// TimeoutError says what was waited for. errors.Is(err, ErrTimeout) holds.
type TimeoutError struct {
	// Key is the key of [Locker.LockTx]; Table and Row are the table and the
	// key of the row of [Table.LockTx]. Row is not part of the error's text: it
	// may be personal. On SQLite it is empty, for all rows are locked at once.
	Key   string
	Table string
	Row   []any
	// Waited is for how long, at least what AtMost was given.
	Waited time.Duration
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("sqllock: %s is still locked by another transaction after %v", what(e.Key, e.Table), e.Waited.Round(time.Millisecond))
}

// Is reports whether target is ErrTimeout.
func (e *TimeoutError) Is(target error) bool { return target == ErrTimeout }

// NotNowError says what is locked. errors.Is(err, ErrNotNow) holds.
type NotNowError struct {
	// Key, Table and Row are as in [TimeoutError].
	Key   string
	Table string
	Row   []any
}

func (e *NotNowError) Error() string {
	return "sqllock: " + what(e.Key, e.Table) + " is locked by another transaction"
}

// Is reports whether target is ErrNotNow.
func (e *NotNowError) Is(target error) bool { return target == ErrNotNow }

// NotFoundError says where a row was looked for. errors.Is(err, ErrNotFound) holds.
type NotFoundError struct {
	// Table is the table's name, Row the key that was looked for. Row is not
	// part of the error's text: it may be personal.
	Table string
	Row   []any
}

func (e *NotFoundError) Error() string {
	return "sqllock: table " + e.Table + ": no row with this key"
}

// Is reports whether target is ErrNotFound.
func (e *NotFoundError) Is(target error) bool { return target == ErrNotFound }

func what(key, table string) string {
	if table != "" {
		return "a row of table " + table
	}
	return fmt.Sprintf("key %.40q", key)
}
