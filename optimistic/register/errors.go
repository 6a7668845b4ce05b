package register

import (
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/optimistic/internal/work"
)

var (
	// ErrConflict means that the value was changed since it was read, and that
	// nothing was written. It is the error of that name of package optimistic, so
	// optimistic.Retry repeats the transaction.
	ErrConflict = work.ErrConflict

	// ErrNotFound means that the name has no value: it never had one, or the value
	// was deleted. An error about a value that was deleted since it was read matches
	// ErrConflict too. It is the error of that name of package optimistic.
	ErrNotFound = work.ErrNotFound
)

// ConflictError holds the two revisions of a conflict. errors.Is(err, ErrConflict) holds.
type ConflictError struct {
	// Name is the value's name. It is not part of the error's text, because it may
	// be personal data.
	Name string
	// Given is the revision that the caller had read, 0 for Create. Found is the
	// revision in the database.
	Given, Found int64
	// Deleted is true if the value was deleted after the caller read it, and the name
	// has no value now. errors.Is(err, ErrNotFound) holds too.
	Deleted bool
}

func (e *ConflictError) Error() string {
	if e.Given == 0 {
		return fmt.Sprintf("register: the name has a value already, in revision %d: read it, and use CompareAndSwap", e.Found)
	}
	if e.Deleted {
		return fmt.Sprintf("register: the value was deleted since it was read: the name is in revision %d, not %d: read it again, and use Create if it has no value", e.Found, e.Given)
	}
	return fmt.Sprintf("register: the value was changed since it was read: it is in revision %d, not %d: read it again", e.Found, e.Given)
}

// Is reports whether target is ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// Unwrap returns a NotFoundError if the value was deleted, and nil otherwise.
func (e *ConflictError) Unwrap() error {
	if e.Deleted {
		return &NotFoundError{e.Name}
	}
	return nil
}

// NotFoundError says which name has no value. errors.Is(err, ErrNotFound) holds.
type NotFoundError struct {
	// Name is the name. It is not part of the error's text.
	Name string
}

func (e *NotFoundError) Error() string {
	return "register: the name has no value: use Create"
}

// Is reports whether target is ErrNotFound.
func (e *NotFoundError) Is(target error) bool { return target == ErrNotFound }

// WriteError is the database's error on the write of a value.
type WriteError struct {
	// Name is the value's name. It is not part of the error's text.
	Name string
	// Err is the driver's error.
	Err error
}

func (e *WriteError) Error() string { return fmt.Sprintf("register: writing a value: %v", e.Err) }

func (e *WriteError) Unwrap() error { return e.Err }

func invalid(field, problem string) error {
	return &holdfast.InputError{Field: field, Problem: problem}
}
