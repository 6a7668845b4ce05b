package optimistic

import (
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/errcode"
	"github.com/holdfast-go/holdfast/optimistic/internal/work"
)

var (
	// ErrConflict means that the row was changed since it was read, and that nothing
	// was written. Read the row again in a new transaction, as [Retry] does.
	ErrConflict = work.ErrConflict

	// ErrNotFound means that no row has this key: it never existed, or was deleted
	// since it was read.
	ErrNotFound = work.ErrNotFound

	// ErrDuplicate means that a unique key of the table refused a new row.
	ErrDuplicate = errcode.New("row-duplicate", "optimistic: a row with the same unique key exists already")

	// ErrNotEnforced means that the database does not refuse updates that leave the
	// version unchanged: see [Table.Enforce].
	ErrNotEnforced = errcode.New("versions-not-enforced", "optimistic: the table's versions are not enforced")
)

// ConflictError holds the two versions of a conflict. errors.Is(err, ErrConflict) holds.
type ConflictError struct {
	// Table is the table's name.
	Table string
	// Key is the row's key. It is not part of the error's text: it may be personal.
	Key []any
	// Given is the version that the caller had read, Found the version in the
	// database: an integer in decimal, or a UUID. They are the same if a trigger or a
	// policy of the database kept the row, or if the row was inserted just after the
	// write.
	Given, Found string
}

func (e *ConflictError) Error() string {
	if e.Given == e.Found {
		return fmt.Sprintf("optimistic: table %s: the row is still in version %s, and the write did not touch it: a trigger or a row policy keeps it, or it was deleted and inserted again meanwhile", e.Table, e.Given)
	}
	return fmt.Sprintf("optimistic: table %s: the row was changed since it was read: it is in version %s, not %s: read it again in a new transaction (Retry does)", e.Table, e.Found, e.Given)
}

// Is reports whether target is ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// NotFoundError says which row does not exist. errors.Is(err, ErrNotFound) holds.
type NotFoundError struct {
	// Table is the table's name.
	Table string
	// Key is the requested key. It is not part of the error's text.
	Key []any
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("optimistic: table %s: no row with this key", e.Table)
}

// Is reports whether target is ErrNotFound.
func (e *NotFoundError) Is(target error) bool { return target == ErrNotFound }

// DuplicateError is an insert that a unique key of the table refused.
// errors.Is(err, ErrDuplicate) holds.
type DuplicateError struct {
	// Table is the table's name.
	Table string
	// Key is the key of the new row. It is not part of the error's text.
	Key []any
	// Err is the driver's error, which names the unique key.
	Err error
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("optimistic: table %s: a row with the same unique key exists already", e.Table)
}

// Is reports whether target is ErrDuplicate.
func (e *DuplicateError) Is(target error) bool { return target == ErrDuplicate }

func (e *DuplicateError) Unwrap() error { return e.Err }

// RowError is the database's error on the write of one row. On PostgreSQL at REPEATABLE READ
// and SERIALIZABLE, on MariaDB with innodb_snapshot_isolation, and on SQLite, a write to a row
// that was changed since it was read fails with such an error, within a holdfast.RetryError.
type RowError struct {
	// Table is the table's name.
	Table string
	// Key is the row's key. It is not part of the error's text.
	Key []any
	// Err is the driver's error.
	Err error
}

func (e *RowError) Error() string {
	return fmt.Sprintf("optimistic: table %s: %v", e.Table, e.Err)
}

func (e *RowError) Unwrap() error { return e.Err }

var _ = errcode.Type[*RefusedError]("version-refused")

// RefusedError is an UPDATE that the trigger of [Table.Enforce], or the procedure of
// [Table.ProcedureSQL], refused.
// errors.Is(err, ErrConflict) holds.
type RefusedError struct {
	// Err is the driver's error.
	Err error
}

func (e *RefusedError) Error() string {
	return "optimistic: the database refused an UPDATE that did not move the row's version by one (Enforce), or a procedure found no row in the version that it was given: write the row through its Table, or set the version to the one that was read plus one, if it still is the one that was read"
}

// Is reports whether target is ErrConflict.
func (e *RefusedError) Is(target error) bool { return target == ErrConflict }

func (e *RefusedError) Unwrap() error { return e.Err }

// EnforceError says why a table's versions are not enforced.
// errors.Is(err, ErrNotEnforced) holds.
type EnforceError struct {
	// Table is the table's name, Trigger the trigger's.
	Table, Trigger string
	// Problem says what was found and what to do.
	Problem string
	// Err is the driver's error; nil if the catalog showed the problem.
	Err error
}

func (e *EnforceError) Error() string {
	return fmt.Sprintf("optimistic: table %s: its versions are not enforced: %s (trigger %s)", e.Table, e.Problem, e.Trigger)
}

// Is reports whether target is ErrNotEnforced.
func (e *EnforceError) Is(target error) bool { return target == ErrNotEnforced }

func (e *EnforceError) Unwrap() error { return e.Err }

func invalid(field, problem string) error {
	return &holdfast.InputError{Field: field, Problem: problem}
}
