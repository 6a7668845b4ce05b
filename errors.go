package holdfast

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrUnknown means that a commit may or may not have happened. Ask again
	// with the same key: a claim waits for the transaction in doubt to end.
	ErrUnknown = errors.New("holdfast: outcome unknown")

	// ErrTxLost means that the transaction had already ended when it was to
	// be committed: the function swallowed an error after which the engine
	// rolled back, ended the transaction itself, or ran DDL on an engine
	// that commits before DDL. Nothing of it was committed by Holdfast.
	ErrTxLost = errors.New("holdfast: the transaction ended before its commit")

	// ErrRetry means that the engine rolled the whole transaction back
	// (deadlock, serialization failure) or that a lock was not to be had in
	// time, as often as it was tried. Nothing happened; trying later is safe.
	ErrRetry = errors.New("holdfast: the transaction was rolled back, run it again")

	// ErrNoTx means that a nil transaction was given.
	ErrNoTx = errors.New("holdfast: no transaction given")

	// ErrInvalid means that an argument was refused before anything was sent.
	ErrInvalid = errors.New("holdfast: invalid argument")

	// ErrSchema means that Holdfast's tables are missing, or of a version that
	// this build does not work with.
	ErrSchema = errors.New("holdfast: wrong schema")

	// ErrUnsupported means that the engine, or one of its settings, cannot
	// keep the promise that was asked of it.
	ErrUnsupported = errors.New("holdfast: not supported")
)

// UnknownError is a commit in doubt. errors.Is(err, ErrUnknown) holds.
type UnknownError struct {
	// Err is what came instead of an answer to COMMIT.
	Err error
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("holdfast: outcome unknown: the commit may or may not have happened (ask again with the same key): %v", e.Err)
}

// Is reports whether target is ErrUnknown.
func (e *UnknownError) Is(target error) bool { return target == ErrUnknown }

func (e *UnknownError) Unwrap() error { return e.Err }

// RetryError is a transaction that was rolled back every time it was tried.
// errors.Is(err, ErrRetry) holds.
type RetryError struct {
	// Attempts is how often it was tried, at least 1.
	Attempts int
	// Err is the last attempt's error, the driver's own within it.
	Err error
}

func (e *RetryError) Error() string {
	return fmt.Sprintf("holdfast: rolled back, nothing happened (%d attempts): %v", e.Attempts, e.Err)
}

// Is reports whether target is ErrRetry.
func (e *RetryError) Is(target error) bool { return target == ErrRetry }

func (e *RetryError) Unwrap() error { return e.Err }

// TxLostError says how a transaction was found to be gone.
// errors.Is(err, ErrTxLost) holds.
type TxLostError struct {
	// Err is what showed it; it may be nil.
	Err error
}

func (e *TxLostError) Error() string {
	text := "holdfast: the transaction ended before its commit: check the error of every statement in the function, end the transaction only by returning, and run no DDL in it"
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Is reports whether target is ErrTxLost.
func (e *TxLostError) Is(target error) bool { return target == ErrTxLost }

func (e *TxLostError) Unwrap() error { return e.Err }

// InputError is an argument that was refused. errors.Is(err, ErrInvalid) holds.
type InputError struct {
	// Field names the argument, Problem says what is wrong and what to do.
	Field, Problem string
}

func (e *InputError) Error() string { return "holdfast: " + e.Field + ": " + e.Problem }

// Is reports whether target is ErrInvalid.
func (e *InputError) Is(target error) bool { return target == ErrInvalid }

// SchemaError is a missing table or a version out of range.
// errors.Is(err, ErrSchema) holds.
type SchemaError struct {
	// Table is where it was looked for.
	Table string
	// Have is the version found, 0 for none; Min and Max are what this build takes.
	Have, Min, Max int
	Err            error
}

func (e *SchemaError) Error() string {
	var b strings.Builder
	switch {
	case e.Have == 0:
		fmt.Fprintf(&b, "holdfast: table %s is missing or empty: apply the migrations (package migrations, or: holdfast migrate up)", e.Table)
	case e.Have < e.Min:
		fmt.Fprintf(&b, "holdfast: the schema is at version %d and this build needs %d to %d: apply the migrations (holdfast migrate up)", e.Have, e.Min, e.Max)
	default:
		fmt.Fprintf(&b, "holdfast: the schema is at version %d and this build knows %d to %d: deploy a newer build", e.Have, e.Min, e.Max)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
}

// Is reports whether target is ErrSchema.
func (e *SchemaError) Is(target error) bool { return target == ErrSchema }

func (e *SchemaError) Unwrap() error { return e.Err }

// UnsupportedError is an engine or a setting that cannot keep a promise.
// errors.Is(err, ErrUnsupported) holds.
type UnsupportedError struct {
	// Engine is the engine found, What the promise, Problem what to do.
	Engine, What, Problem string
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("holdfast: %s: %s: %s", e.Engine, e.What, e.Problem)
}

// Is reports whether target is ErrUnsupported.
func (e *UnsupportedError) Is(target error) bool { return target == ErrUnsupported }
