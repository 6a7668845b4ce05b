// Package ledger reads and writes the tables of the staged operations. It holds their rows, their
// statements, and the transactions that change them.
package ledger

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/errcode"
)

// The states of operations. A record of Do has the states from Pending (while claimed) to
// RejectedTombstone.
const (
	Pending           = 1
	Succeeded         = 2
	Rejected          = 3
	Tombstone         = 4
	RejectedTombstone = 5
	Parked            = 6 // unknown
)

// The states of a step.
const (
	StepNotDone  = 0
	StepBegun    = 1
	StepDone     = 2
	StepRejected = 3
	StepAccepted = 4 // the provider settles it later
)

// A mode says what may be done with a begun step after the lease has ended.
const (
	ModeTakeOver  = 1
	ModePark      = 2
	ModeReconcile = 3
	// ModeCorrect: the operation is parked at a step whose stored result the program cannot read,
	// and no later step has used that result.
	ModeCorrect = 4
	// ModeContradicted: the provider gave two answers that exclude each other. The operation is
	// parked at the step, or has ended.
	ModeContradicted = 5
)

// Errors about the state of the tables. Package staged documents them.
var (
	ErrStale    = errcode.New("worker-stale", "staged: the operation is another worker's now")
	ErrState    = errcode.New("operation-state", "staged: not possible in this state")
	ErrNotFound = errcode.New("operation-not-found", "staged: no such operation")
)

var _ = once.Outcomes(ErrStale)

// Bounds are the bounds of the ledger's transactions.
type Bounds struct {
	Wait time.Duration
	Tx   holdfast.TxOptions
}

// Ledger reads and writes the tables.
type Ledger[Tx any] struct {
	SQL    SQL
	Access access.Access[Tx]
	writer once.Writer[Tx]
}

// New returns the ledger of db.
func New[Tx any](db *holdfast.DB[Tx], b Bounds) *Ledger[Tx] {
	a := access.Of(db)
	l := &Ledger[Tx]{SQL: compile(a.Dialect, a.Table), Access: a}
	l.writer = once.Writer[Tx]{DB: db, Access: a, Options: b.Tx, Wait: b.Wait, Answers: answers, Explain: l.Explain}
	return l
}

// Send is once.Writer.Send.
func (l *Ledger[Tx]) Send(ctx context.Context, t once.Transaction[Tx]) error {
	return l.writer.Send(ctx, t)
}

// Write runs one transaction until its outcome is certain. f runs again after an unknown commit,
// so it must detect what that commit may have done.
func (l *Ledger[Tx]) Write(ctx context.Context, f func(ctx context.Context, tx Tx, q core.Querier) error) error {
	return l.writer.Write(ctx, f)
}

// answers reports whether err is one of Holdfast's own errors. Such an error is definite, even
// though the dialect would class an error without a code differently.
func answers(err error) bool {
	var lost *holdfast.TxLostError
	if errors.As(err, &lost) && lost.Err == nil {
		return true // the last statement wrote no row
	}
	return errors.Is(err, ErrStale) || errors.Is(err, ErrState) || errors.Is(err, ErrNotFound) || errors.Is(err, holdfast.ErrInvalid)
}

// Explain adds the remedy to errors that have a known one.
func (l *Ledger[Tx]) Explain(err error) error {
	if err != nil && l.Access.Dialect.Classify(err) == dialect.NoTable {
		return &holdfast.SchemaError{Table: l.Access.Table("staged"), Err: err}
	}
	return err
}

// Row is the stored row of an operation.
type Row struct {
	State                    int
	Fingerprint              []byte
	FingerprintVersion       int
	Request, Result, Attempt []byte
	Token, Left              int64
	Step                     string
	Mode                     int
	Started, Finished        int
	Restored                 int
	Reason                   string
	ResultType               string
	// Accepted: a provider settles the step later. Reversed: when a step that was done was taken
	// back, in µs; 0 is never.
	Accepted int
	Reversed int64
	// ResultExpired and KeyExpired: the ResultTTL or the KeyTTL of an operation that has ended is
	// over.
	ResultExpired, KeyExpired int
	Program, RequestID        string
	Namespace, Name           string
	Mine                      bool
	Fresh                     bool      // this call has inserted it, so that it has no steps
	Until                     time.Time // end of the lease, by this process's monotonic clock
}

// Own sets whether the row belongs to this attempt. until is computed from a time before the claim
// was sent, so the lease ends here before it ends in the database.
func (r *Row) Own(attempt []byte, until time.Time) {
	r.Mine = r.State == Pending && bytes.Equal(r.Attempt, attempt)
	r.Until = until
}

// Read reads an operation. It returns nil if there is none.
func (l *Ledger[Tx]) Read(ctx context.Context, q core.Querier, id once.ID) (*Row, error) {
	return l.read(ctx, q, l.SQL.Look, id)
}

// Latest reads the latest committed row of an operation, also in a transaction whose snapshot is
// older, and locks it. It returns nil if there is none.
func (l *Ledger[Tx]) Latest(ctx context.Context, q core.Querier, id once.ID) (*Row, error) {
	return l.read(ctx, q, l.SQL.Latest, id)
}

func (l *Ledger[Tx]) read(ctx context.Context, q core.Querier, stmt core.Stmt, id once.ID) (*Row, error) {
	var r Row
	found, err := stmt.QueryRow(ctx, q, []any{
		&r.State, &r.Fingerprint, &r.FingerprintVersion, &r.Request, &r.Result, &r.Attempt, &r.Token, &r.Left,
		&r.Step, &r.Mode, &r.Started, &r.Finished, &r.Restored, &r.Reason, &r.ResultType,
		&r.Accepted, &r.Reversed, &r.ResultExpired, &r.KeyExpired, &r.Program, &r.RequestID, &r.Namespace, &r.Name,
	}, id.Args()...)
	if err != nil {
		return nil, l.Explain(err)
	}
	if !found {
		return nil, nil
	}
	return &r, nil
}

// Find reads an operation and returns ErrNotFound if there is none.
func (l *Ledger[Tx]) Find(ctx context.Context, q core.Querier, id once.ID) (*Row, error) {
	row, err := l.Read(ctx, q, id)
	if err == nil && row == nil {
		err = ErrNotFound
	}
	return row, err
}

// Touch locks an operation until the transaction ends, and reads it.
func (l *Ledger[Tx]) Touch(ctx context.Context, q core.Querier, id once.ID) (*Row, error) {
	if _, err := l.SQL.Touch.Exec(ctx, q, id.Args()...); err != nil {
		return nil, err
	}
	return l.Find(ctx, q, id)
}

// StepRow is a recovery point.
type StepRow struct {
	State      int
	Token      int64
	Result     []byte
	ResultType string
	Age        int64 // since it, or its last call, began, in µs
}

// Step reads a recovery point. It returns nil if there is none.
func (l *Ledger[Tx]) Step(ctx context.Context, q core.Querier, id once.ID, name string) (*StepRow, error) {
	var r StepRow
	found, err := l.SQL.StepLook.QueryRow(ctx, q, []any{&r.State, &r.Token, &r.Result, &r.ResultType, &r.Age}, id.Args(name)...)
	if err != nil || !found {
		return nil, err
	}
	return &r, nil
}

// Erase erases an operation that has ended. It returns false if there was nothing to erase.
func (l *Ledger[Tx]) Erase(ctx context.Context, q core.Querier, id once.ID) (bool, error) {
	res, err := l.SQL.Erase.Exec(ctx, q, id.Args()...)
	if err != nil || res.Affected != 1 {
		return false, err
	}
	if _, err = l.SQL.EraseSteps.Exec(ctx, q, id.Args()...); err == nil {
		_, err = l.SQL.EraseEvents.Exec(ctx, q, id.Args()...)
	}
	return true, err
}

// Forget deletes an operation whose KeyTTL is over, with its steps and events. It returns false if
// there was nothing to delete.
func (l *Ledger[Tx]) Forget(ctx context.Context, q core.Querier, id once.ID) (bool, error) {
	res, err := l.SQL.Forget.Exec(ctx, q, id.Args()...)
	if err != nil || res.Affected != 1 {
		return false, err
	}
	if _, err = l.SQL.ForgetSteps.Exec(ctx, q, id.Args()...); err == nil {
		_, err = l.SQL.ForgetEvents.Exec(ctx, q, id.Args()...)
	}
	return true, err
}

// MaxAhead is a time in the future, in µs, later than the end of any lease or pause.
const MaxAhead = 1 << 52
