package once

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
)

// Writer runs transactions whose outcome must become certain.
type Writer[Tx any] struct {
	DB      *holdfast.DB[Tx]
	Options holdfast.TxOptions
	// Wait bounds how long Write tries to resolve an unknown commit.
	Wait time.Duration
	// Answers reports whether an error describes the state of the tables.
	Answers func(err error) bool
	// Explain adds the remedy to errors that have a known one.
	Explain func(err error) error
}

// Write runs one transaction until its outcome is certain. f runs again after an unknown commit,
// so it must detect what that commit may have done.
func (w *Writer[Tx]) Write(ctx context.Context, f func(ctx context.Context, tx Tx, q core.Querier) error) error {
	access := w.DB.Access()
	var unknown error
	end, pause := time.Now().Add(w.Wait), core.NewBackoff()
	for {
		err := w.DB.InTx(ctx, func(ctx context.Context, tx Tx) error {
			q, err := access.Join(tx)
			if err != nil {
				return err
			}
			return f(ctx, tx, q)
		}, w.Options)
		var inFunc *FuncError
		switch {
		case err == nil:
			return nil
		case errors.Is(err, holdfast.ErrRetry):
			return err
		case errors.As(err, &inFunc):
			return inFunc.Err
		case errors.Is(err, holdfast.ErrUnknown):
			unknown = err
		case unknown != nil && access.Dialect.Disconnected(err) && !w.Answers(err):
			// try again until the wait is over
		default:
			return w.Explain(err)
		}
		if time.Now().After(end) || ctx.Err() != nil || pause.Sleep(ctx) != nil {
			return unknown
		}
	}
}
