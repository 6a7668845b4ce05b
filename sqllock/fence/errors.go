package fence

import (
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/errcode"
	"github.com/holdfast-go/holdfast/sqllock"
)

// ErrNotEnforced means that the database does not refuse writes without the token of a live term:
// see [Table.Enforce].
var ErrNotEnforced = errcode.New("fence-missing", "fence: the table has no fence")

// EnforceError says why a table has no fence. errors.Is(err, ErrNotEnforced) holds.
type EnforceError struct {
	// Table is the table's name, Trigger the trigger's.
	Table, Trigger string
	// Problem says what was found and what to do.
	Problem string
	// Err is the driver's error; nil if the catalog showed the problem.
	Err error
}

func (e *EnforceError) Error() string {
	return fmt.Sprintf("fence: table %s: writes are not fenced: %s (trigger %s)", e.Table, e.Problem, e.Trigger)
}

// Is reports whether target is ErrNotEnforced.
func (e *EnforceError) Is(target error) bool { return target == ErrNotEnforced }

func (e *EnforceError) Unwrap() error { return e.Err }

var _ = errcode.Type[*RefusedError]("fence-refused")

// RefusedError is a write that a trigger of [Table.Enforce] refused: its token is not that of the
// lock's live term. errors.Is(err, sqllock.ErrLost) holds.
type RefusedError struct {
	// Err is the driver's error. Its text says which rule the write broke.
	Err error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("fence: the database refused a write: %v: acquire the lock again, read the row again, and write the token of the new lease", e.Err)
}

// Is reports whether target is sqllock.ErrLost.
func (e *RefusedError) Is(target error) bool { return target == sqllock.ErrLost }

func (e *RefusedError) Unwrap() error { return e.Err }

// AsLost turns the error of a write that a trigger of [Table.Enforce] refused into a
// [sqllock.ErrLost] ([*RefusedError]), and returns every other error unchanged.
func AsLost[Tx any](db *holdfast.DB[Tx], err error) error {
	var refused *RefusedError
	if err == nil || errors.As(err, &refused) || access.Of(db).Dialect.Classify(err) != dialect.Fenced {
		return err
	}
	return &RefusedError{Err: err}
}

func invalid(field, problem string) error {
	return &holdfast.InputError{Field: field, Problem: problem}
}
