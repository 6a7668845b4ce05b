package keeper

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/auditlog"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/lockstmt"
	"github.com/holdfast-go/holdfast/internal/lockname"
)

type (
	// AttemptID identifies one attempt to acquire a lock.
	AttemptID = lockstmt.AttemptID
	// Attempt is one attempt to acquire a lock.
	Attempt = lockstmt.Attempt
	// Freed is the outcome of ending a term.
	Freed = lockstmt.Freed
)

// Process identifies a process. The ids of its attempts begin with it.
type Process [8]byte

// NewProcess returns a new random id of a process without a session.
func NewProcess() (p Process) {
	_, _ = rand.Read(p[:]) // it never fails
	p[len(p)-1] &^= inSession
	return p
}

// NewAttemptID returns a new random id of an attempt of the process.
func (p Process) NewAttemptID() (id AttemptID) {
	copy(id[:], p[:])
	_, _ = rand.Read(id[len(p):])
	return id
}

// ProcessOf returns the process of an attempt, or zero if there is no attempt.
func ProcessOf(attempt []byte) (p Process) {
	if len(attempt) == len(AttemptID{}) {
		copy(p[:], attempt)
	}
	return p
}

// AttemptResult is the outcome of an attempt. For a held lock whose row could be read, its State
// describes the holder.
type AttemptResult struct {
	lockstmt.State

	Won       bool
	Ambiguous bool // as in Attempt
}

// Statements runs the statements of the locks' tables.
type Statements struct {
	*lockstmt.Tables

	Dialect *dialect.Dialect
	Locks   string // the table
	Holder  string
	Process Process   // this one
	Self    AttemptID // identifies it as a waiter
	ID      string    // the identity of the tables: after-restore changes it

	Connections int // that the pool may have; 0: it has no bound

	// Starved is access.Handle's.
	Starved func(ctx context.Context, err error) error

	onConn func(ctx context.Context, before string, f func(q core.Querier) error) error
	inTx   func(ctx context.Context, o core.TxOptions, f func(ctx context.Context, q core.Querier) error) error
	look   lockstmt.Look
	audit  *auditlog.Log
	guards map[bool]lockstmt.Guard // by whether the term is a lease
}

// OpenStatements returns the statements of a database and reads the identity of its tables.
func OpenStatements[Tx any](ctx context.Context, a access.Access[Tx], holder string) (*Statements, error) {
	t, process := lockstmt.New(a.Dialect, a.Table), NewProcess()
	s := &Statements{
		Tables: t, Dialect: a.Dialect, Locks: a.Table("locks"), Holder: holder, Process: process, Self: process.NewAttemptID(),
		look: t.Look(), audit: auditlog.New(a.Dialect, a.Table), guards: map[bool]lockstmt.Guard{true: t.LeaseGuard(), false: t.TicketGuard()},
		Starved: a.Starved, onConn: a.OnConn,
		inTx: func(ctx context.Context, o core.TxOptions, f func(ctx context.Context, q core.Querier) error) error {
			return a.Attempt(ctx, o, nil, func(ctx context.Context, _ Tx, q core.Querier, _ core.Reply) error { return f(ctx, q) })
		},
	}
	_, s.Connections = a.Connections()
	err := s.identify(ctx, a.Table("floor"))
	return s, err
}

// identify reads the identity of the tables.
func (s *Statements) identify(ctx context.Context, floor string) error {
	var id []byte
	err := s.OnConn(ctx, func(q core.Querier) error {
		found, err := s.Compile("store", `SELECT store FROM {floor} WHERE id = 1`).QueryRow(ctx, q, []any{&id})
		if err == nil && !found {
			return errors.New("its row is gone: apply the migrations again (holdfast migrate up)")
		}
		s.ID = string(id)
		return err
	})
	if missing := (*holdfast.SchemaError)(nil); errors.As(err, &missing) {
		missing.Table = floor
	}
	return err
}

// OnConn runs f on a connection of the pool. If the connection was dead, f runs again on
// another one.
func (s *Statements) OnConn(ctx context.Context, f func(q core.Querier) error) error {
	return s.missing(s.onConn(ctx, "", f))
}

// OnMany is OnConn for one statement that affects many rows.
func (s *Statements) OnMany(ctx context.Context, f func(q core.Querier) error) error {
	return s.missing(s.Tables.OnMany(ctx, s.onConn, f))
}

// waited reports whether a statement was ended, or rolled back, as one is that waits for a locked row.
func (s *Statements) waited(err error) bool {
	class := s.Dialect.Classify(err)
	return class == dialect.Busy || class == dialect.Retry
}

// InTx runs f in one transaction, once.
func (s *Statements) InTx(ctx context.Context, o core.TxOptions, f func(ctx context.Context, q core.Querier) error) error {
	return s.missing(s.inTx(ctx, o, f))
}

// missing turns the error of a missing table into a SchemaError, which says what to do.
func (s *Statements) missing(err error) error {
	if s.Dialect.Classify(err) == dialect.NoTable {
		return &holdfast.SchemaError{Table: s.Locks, Err: err}
	}
	return err
}

// Retry runs f again after errors that the engine wants retried, at most
// core.DefaultAttempts times.
func (s *Statements) Retry(ctx context.Context, f func(q core.Querier) error) error {
	return s.Again(ctx, func() error { return s.OnConn(ctx, f) })
}

// Again is Retry for an f that opens its own connection.
func (s *Statements) Again(ctx context.Context, f func() error) error {
	exhausted, err := core.Retry(ctx, core.DefaultAttempts, s.retryable, func(int) error { return f() })
	switch {
	case exhausted:
		return &holdfast.RetryError{Attempts: core.DefaultAttempts, Err: err}
	case ctx.Err() != nil && s.retryable(err):
		return context.Cause(ctx)
	}
	return err
}

// retryable reports whether the engine wants the statement retried after err.
func (s *Statements) retryable(err error) bool {
	class := s.Dialect.Classify(err)
	return class == dialect.Retry || class == dialect.Busy || class == dialect.Unready || errors.Is(err, core.ErrAgain)
}

// Ambiguous wraps f. It sets ambiguous if f failed and may still take effect.
func (s *Statements) Ambiguous(ambiguous *bool, f func(q core.Querier) error) func(q core.Querier) error {
	return func(q core.Querier) error {
		err := f(q)
		*ambiguous = *ambiguous || s.MayStand(err)
		return err
	}
}

// MayStand reports whether a statement that returned err failed and may still take effect.
func (s *Statements) MayStand(err error) bool { return err != nil && !s.Dialect.RolledBack(err) }

// HolderOf reads the row of a lock.
func (s *Statements) HolderOf(ctx context.Context, name lockname.Name) (a AttemptResult, err error) {
	err = s.OnConn(ctx, func(q core.Querier) error {
		a.State, _, err = s.ReadOn(ctx, q, name)
		return err
	})
	return a, err
}

// ReadOn reads the row of a lock. there reports whether the row exists.
func (s *Statements) ReadOn(ctx context.Context, q core.Querier, name lockname.Name) (state lockstmt.State, there bool, err error) {
	return s.look.Run(ctx, q, name)
}

// Micros returns n microseconds.
func Micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
