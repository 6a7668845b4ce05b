package rowlock

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/errcode"
)

var (
	// ErrLockNotAvailable means that another transaction holds the lock, and the call
	// does not wait ([holdfast.NoWait]). The transaction goes on.
	ErrLockNotAvailable = errcode.New("row-locked", "rowlock: locked by another transaction")

	// ErrTimeout means that the lock could not be acquired within the wait of the call. The
	// transaction goes on.
	ErrTimeout = errcode.New("row-lock-timeout", "rowlock: the lock was not acquired in time")

	// ErrNotFound means that the table has no row with this key. The transaction
	// goes on.
	ErrNotFound = errcode.New("row-not-found", "rowlock: no row with this key")

	// ErrLost means that a [SessionLock] ended before its release.
	ErrLost = errcode.New("session-lock-lost", "rowlock: the session lock is lost")

	// ErrReleased is the cause with which the context of a [SessionLock] ends at
	// its release.
	ErrReleased = errcode.New("session-lock-released", "rowlock: the session lock was released")
)

// LockNotAvailableError says which lock another transaction holds.
// errors.Is(err, ErrLockNotAvailable) holds.
type LockNotAvailableError struct {
	// Key is the key of [Locker.LockTx]. Table and Row are the table and the key of
	// the row of [Table.LockTx]. Row is not part of the error's text, because it may
	// be personal data. On SQLite Row is empty: all rows are locked at once.
	Key   string
	Table string
	Row   []any
}

func (e *LockNotAvailableError) Error() string {
	return "rowlock: " + what(e.Key, e.Table) + " is locked by another transaction: try later, or wait for it"
}

// Is reports whether target is ErrLockNotAvailable.
func (e *LockNotAvailableError) Is(target error) bool { return target == ErrLockNotAvailable }

// TimeoutError says which lock was waited for. errors.Is(err, ErrTimeout) holds.
type TimeoutError struct {
	// Key, Table and Row are as in [LockNotAvailableError].
	Key   string
	Table string
	Row   []any
	// Waited is how long the call waited: at least the wait of the call.
	Waited time.Duration
	// Blockers are the sessions that had the lock, or waited for it before this call, shortly before
	// the wait was over. It is empty if the engine does not tell
	// ([holdfast.Capabilities].NamesBlockers), if the role may not ask (docs/reference/locks.md), if the pool
	// had no connection free for the question, and after a wait of less than about 40 ms.
	Blockers []holdfast.Blocker
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("rowlock: %s is still locked by another transaction after %v%s: try later, or wait for it",
		what(e.Key, e.Table), e.Waited.Round(time.Millisecond), core.BlockedBy(e.Blockers))
}

// Is reports whether target is ErrTimeout.
func (e *TimeoutError) Is(target error) bool { return target == ErrTimeout }

// NotFoundError says which row does not exist. errors.Is(err, ErrNotFound) holds.
type NotFoundError struct {
	// Table is the table's name, Row the key. Row is not part of the error's text,
	// because it may be personal data.
	Table string
	Row   []any
}

func (e *NotFoundError) Error() string {
	return "rowlock: table " + e.Table + ": no row with this key"
}

// Is reports whether target is ErrNotFound.
func (e *NotFoundError) Is(target error) bool { return target == ErrNotFound }

// LostError says why a session lock ended early. errors.Is(err, ErrLost) holds.
type LostError struct {
	Key string
	// Reason says how the end of the lock was detected.
	Reason string
	// Err is the driver's error; it may be nil.
	Err error
}

func (e *LostError) Error() string {
	text := fmt.Sprintf("rowlock: the session lock on %.40q is lost: %s", e.Key, e.Reason)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Is reports whether target is ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

func (e *LostError) Unwrap() error { return e.Err }

func what(key, table string) string {
	if table != "" {
		return "a row of table " + table
	}
	return fmt.Sprintf("key %.40q", key)
}

func invalid(field, problem string) error {
	return &holdfast.InputError{Field: field, Problem: problem}
}
