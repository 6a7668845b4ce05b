package holdfast

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/errcode"
)

var (
	// ErrUnknown means that a commit may or may not have happened. With a key, call again with
	// the same key: the call waits until the server has ended the first transaction. Without
	// one, such as after [DB.InTx], do not call again before you have read what is there first. Work that
	// must happen once belongs under idempotency.Do, or needs a row with a unique number in the
	// same transaction.
	ErrUnknown = errcode.ErrUnknown

	// ErrTxLost means that the transaction had ended before its commit: the function ignored
	// an error after which the engine rolled back, ended the transaction itself, or ran DDL on
	// an engine that commits before DDL. Holdfast committed nothing.
	ErrTxLost = errcode.New("transaction-lost", "holdfast: the transaction ended before its commit")

	// ErrRetry means that every attempt failed: the engine rolled the transaction back
	// (deadlock, serialization failure), a lock timed out, or a time limit of the
	// server, which the error names (such as statement_timeout), ended a statement or
	// the session. Nothing happened; a later call is safe.
	ErrRetry = errcode.New("transaction-rolled-back", "holdfast: the transaction was rolled back, run it again")

	// ErrRowsOpen means that a function left rows open (a Query without Close), so the driver
	// could not send the commit. Nothing was committed, and the function does not run again.
	ErrRowsOpen = errcode.New("rows-open", "holdfast: rows were left open in the function, nothing was committed: close them (defer rows.Close()) before it returns")

	// ErrReadOnly means that a write failed because the session, its transaction or
	// the server is read-only.
	ErrReadOnly = errcode.New("read-only", "holdfast: the session, its transaction or the server is read-only: use a read-write transaction on the primary")

	// ErrDenied means that the role of the connection lacks a privilege. See
	// migrations.PrintGrants.
	ErrDenied = errcode.New("permission-denied", "holdfast: the account lacks a privilege: grant it what `holdfast migrate grants` prints for its role, and rights to the program's own tables that it reads and writes")

	// ErrConnectionLost means that the connection to the database ended, or that its driver gave it up,
	// before a statement was answered: a network failure, a shutdown, MySQL's wait_timeout, or a
	// readTimeout of the DSN that is shorter than a wait for a lock. A transaction that had not sent its
	// COMMIT is rolled back. After a COMMIT the error is ErrUnknown, not this one.
	ErrConnectionLost = errcode.New("connection-lost", "holdfast: the connection to the database ended before the answer (a readTimeout in the DSN must be longer than LockTimeout)")

	// ErrPoolExhausted means that the context of a call ended while every connection of the pool was in
	// use, and the call had none. A call inside the function of another call, such as a Do inside a Do or
	// inside InTx, needs its own connection: with a pool of one it waits for itself.
	ErrPoolExhausted = errcode.New("pool-exhausted", "holdfast: every connection of the pool is in use")

	// ErrTooLarge means that a statement is larger than the driver or the server accepts. It had no effect.
	ErrTooLarge = errcode.New("statement-too-large", "holdfast: a statement is larger than max_allowed_packet of the server, or maxAllowedPacket of the driver: send less, or raise both")

	// ErrNoTx means that a nil transaction was given.
	ErrNoTx = core.ErrNoTx

	// ErrInvalid means that an argument is invalid. Nothing was sent to the database.
	ErrInvalid = errcode.ErrInvalid

	// ErrSchema means that Holdfast's tables are missing, or that this build does not support
	// their version.
	ErrSchema = errcode.New("wrong-schema", "holdfast: wrong schema")

	// ErrUnsupported means that the engine, a setting or a table cannot keep a
	// promise of Holdfast.
	ErrUnsupported = errcode.New("unsupported", "holdfast: not supported")
)

// UnknownError reports a commit whose outcome is unknown. errors.Is(err, ErrUnknown) holds.
type UnknownError struct {
	// Err is the error that arrived instead of an answer to COMMIT.
	Err error
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("holdfast: outcome unknown: the commit may or may not have happened (ask again with the same key): %v", e.Err)
}

// Is reports whether target is ErrUnknown.
func (e *UnknownError) Is(target error) bool { return target == ErrUnknown }

func (e *UnknownError) Unwrap() error { return e.Err }

// RetryError reports a transaction that was rolled back on every attempt. errors.Is(err,
// ErrRetry) holds.
type RetryError struct {
	// Attempts is the number of attempts, at least 1.
	Attempts int
	// Err is the error of the last attempt. It wraps the driver's error.
	Err error
}

func (e *RetryError) Error() string {
	text := fmt.Sprintf("holdfast: rolled back, nothing happened (%d attempts): %v", e.Attempts, e.Err)
	if limit := dialect.EndedBy(e.Err); limit != "" {
		text += " (" + limit + " ended it: raise it, or do less in the transaction)"
	}
	return text
}

// Is reports whether target is ErrRetry.
func (e *RetryError) Is(target error) bool { return target == ErrRetry }

func (e *RetryError) Unwrap() error { return e.Err }

// TxLostError reports a transaction that ended before its commit. errors.Is(err, ErrTxLost)
// holds.
type TxLostError struct {
	// Err is the error that revealed the loss. It may be nil.
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

// InputError reports an invalid argument. errors.Is(err, ErrInvalid) holds.
type InputError struct {
	// Field names the argument.
	Field string
	// Problem says what is wrong and what to do.
	Problem string
}

func (e *InputError) Error() string { return (*errcode.InputError)(e).Error() }

// Is reports whether target is ErrInvalid.
func (e *InputError) Is(target error) bool { return target == ErrInvalid }

var _ = errcode.PublicInput(func(e *errcode.InputError) error { return (*InputError)(e) })

// Blocker is a session of the server that has a lock for which another session waits. The errors of a
// wait that is over name it where the engine tells ([Capabilities].NamesBlockers) and the role may ask.
// What the role may not see is empty.
type Blocker struct {
	// Session is its id: for pg_terminate_backend on PostgreSQL, for KILL on MySQL and MariaDB. It
	// may wait itself, for another session. A prepared transaction has none, and is 0: State names it on PostgreSQL.
	Session string
	// User is the name of the session's user. Client is its application or, if it gave none, its address.
	User, Client string
	// State is what the session does, in the server's words: one that is "idle in transaction" or "Sleep"
	// waits for its program.
	State string
	// Open is how long its transaction has lasted.
	Open time.Duration
}

// String returns the blocker as "session 4711 (app@worker3, idle in transaction, open for 12s)".
func (b Blocker) String() string { return core.Blocker(b).String() }

// SchemaError reports a missing table, or a schema version out of range. errors.Is(err,
// ErrSchema) holds.
type SchemaError struct {
	// Table is the name of the table that was read.
	Table string
	// Have is the version found, 0 for none. Min and Max are the versions that this build
	// supports.
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

// UnsupportedError reports an engine, a setting or a table on which a promise does not hold.
// errors.Is(err, ErrUnsupported) holds. If several things are wrong, Open joins several of
// these errors (errors.Join). docs/reference/environments.md lists all checks.
type UnsupportedError struct {
	// Engine is the product of the server, such as "MySQL 9.7".
	Engine string
	// Check is the stable name of the check, as doctor reports it.
	Check string
	// What is the refused setting, table or ability. Value is its value, or "" if it has none.
	What, Value string
	// Problem says which promise does not hold (G1 to G8, see the README) and how. Remedy says
	// what to do.
	Problem, Remedy string
}

func (e *UnsupportedError) Error() string {
	text := "holdfast: " + e.Engine + ": " + e.What
	if e.Value != "" {
		text += " is " + e.Value
	}
	text += ": " + e.Problem
	if e.Remedy != "" {
		text += ": " + e.Remedy
	}
	return text
}

// Is reports whether target is ErrUnsupported.
func (e *UnsupportedError) Is(target error) bool { return target == ErrUnsupported }

// Code returns the stable code of err for programs and logs, such as "unknown-outcome" or "lock-held":
// that of the outermost error of Holdfast's in err's tree, or "" if there is none. An error with a type of
// its own may have another code than its sentinel: idempotency's ErrUnknown is "unknown-outcome", and a
// *staged.ParkedError "operation-parked". Every code is explained in docs/reference/errors.md, and by
// holdfast explain CODE. An error of another module gives its code with a method HoldfastCode() string.
func Code(err error) string { return errcode.Of(err) }
