// Package work runs the transactions of packages optimistic and register, and holds
// the errors that both have.
package work

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/errcode"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// The errors of both packages, so that optimistic.Retry repeats a transaction after
// a conflict of either.
var (
	ErrConflict = errcode.New("version-conflict", "optimistic: changed since it was read")
	ErrNotFound = errcode.New("version-not-found", "optimistic: not found")
)

// Work is a DB and its internal access.
type Work[Tx any] struct {
	DB     *holdfast.DB[Tx]
	Access access.Access[Tx]
}

// On returns the Work of db.
func On[Tx any](db *holdfast.DB[Tx]) Work[Tx] { return Work[Tx]{db, access.Of(db)} }

// StartSpan reports the start of a call to the tracers.
func (w *Work[Tx]) StartSpan(ctx context.Context, name string) (context.Context, trace.Span) {
	return w.Access.Trace.Start(ctx, trace.Call{Name: name})
}

// InTx runs f in its own transaction.
func InTx[T, Tx any](ctx context.Context, w *Work[Tx], f func(ctx context.Context, tx Tx) (T, error)) (out T, err error) {
	ctx = w.Access.Trace.Quiet(ctx) // the calls within f are part of this one
	err = w.DB.InTx(ctx, func(ctx context.Context, tx Tx) (err error) {
		out, err = f(ctx, tx)
		return err
	})
	if err != nil {
		return *new(T), err
	}
	return out, nil
}

// Read runs f, which reads, on the pool. It repeats f as InTx would: a migration, for example, outdates
// the statements that connections have prepared.
func (w *Work[Tx]) Read(ctx context.Context, f func(q core.Querier) error) error {
	exhausted, err := core.Retry(ctx, core.DefaultAttempts, w.DB.Retryable, func(int) error { return f(w.Access.Pool) })
	if exhausted {
		return &holdfast.RetryError{Attempts: core.DefaultAttempts, Err: err}
	}
	return err
}

// Undo rolls tx back after err, so that a caller that ignores err cannot commit half of the
// work. It returns err, within a holdfast.RetryError if a new transaction may succeed.
func (w *Work[Tx]) Undo(ctx context.Context, tx Tx, err error) error {
	cleanup, cancel := core.Cleanup(ctx)
	defer cancel()
	_ = w.Access.Rollback(cleanup, tx)
	switch {
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	case w.DB.Retryable(err):
		return &holdfast.RetryError{Attempts: 1, Err: err}
	}
	return err
}

// Outcome names the errors that both packages have.
func Outcome(err error) string {
	switch {
	case errors.Is(err, ErrConflict):
		return trace.Conflict
	case errors.Is(err, ErrNotFound):
		return trace.NotFound
	}
	return ""
}
