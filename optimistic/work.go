package optimistic

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
)

// work is what a Table and a Register run their transactions with.
type work[Tx any] struct {
	db     *holdfast.DB[Tx]
	access access.Access[Tx]
}

func workOn[Tx any](db *holdfast.DB[Tx]) work[Tx] { return work[Tx]{db, db.Access()} }

// own runs f in a transaction of its own.
func own[T, Tx any](ctx context.Context, w work[Tx], f func(ctx context.Context, tx Tx) (T, error)) (out T, err error) {
	ctx = w.access.Trace.Quiet(ctx) // what it is made of
	err = w.db.InTx(ctx, holdfast.TxOptions{}, func(ctx context.Context, tx Tx) (err error) {
		out, err = f(ctx, tx)
		return err
	})
	if err != nil {
		return *new(T), err
	}
	return out, nil
}

// undo rolls tx back after err, so that nobody commits what is left of it.
func (w work[Tx]) undo(ctx context.Context, tx Tx, err error) error {
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), holdfast.CleanupTimeout)
	defer cancel()
	_ = w.access.Rollback(cleanup, tx)
	err = AsConflict(w.db, err)
	switch {
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	case w.db.Retryable(err):
		return &holdfast.RetryError{Attempts: 1, Err: err}
	}
	return err
}
