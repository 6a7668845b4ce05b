package once

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// Writer runs transactions whose outcome must become certain.
type Writer[Tx any] struct {
	DB      *holdfast.DB[Tx]
	Access  access.Access[Tx] // of the DB
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
	return w.resolve(ctx, func() error {
		return w.DB.InTx(ctx, func(ctx context.Context, tx Tx) error {
			q, err := w.Access.Join(tx)
			if err != nil {
				return err
			}
			return f(ctx, tx, q)
		}, w.Options)
	})
}

// Transaction is a transaction whose first and last statements are known.
type Transaction[Tx any] struct {
	// First is its first statement; nil for none. Then gets the answer, and returns the last statement,
	// which writes one row.
	First *core.Bound
	Then  func(ctx context.Context, tx Tx, q core.Querier, a core.Reply) (last core.Bound, err error)
	// Foreign: Then runs a function of the program's. It may lose the transaction and say nothing.
	Foreign bool
}

// Send is Write for a Transaction. Where the driver can, BEGIN travels with its first statement and COMMIT with
// its last one. If the last one writes no row, Send rolls back and returns holdfast.ErrTxLost.
func (w *Writer[Tx]) Send(ctx context.Context, t Transaction[Tx]) error {
	if t.Foreign && w.Access.Dialect.Fence.Mark != "" { // only a mark proves that it is the same transaction
		return w.Write(ctx, t.plain)
	}
	opts := core.TxOptions{
		Isolation:   w.Options.Isolation,
		LockTimeout: cmp.Or(w.Options.LockTimeout, w.Access.Dialect.LockTimeout, core.DefaultLockTimeout),
	}
	attempts := cmp.Or(w.Options.Attempts, core.DefaultAttempts)
	return w.resolve(ctx, func() (err error) {
		ctx, span := w.Access.Trace.Start(ctx, trace.Call{Name: "transaction"}) // as InTx has it
		defer func() { span.End(err, nil) }()
		err = trace.ErrAborted // if a function panics or ends its goroutine
		exhausted, result := core.RetryTx(ctx, attempts, w.DB.Retryable, func(attempt int) error {
			span.Attempts = attempt
			return w.send(ctx, opts, t)
		})
		if exhausted {
			return &holdfast.RetryError{Attempts: attempts, Err: result}
		}
		return w.Access.Explain(result)
	})
}

// plain runs t in a transaction that runs.
func (t Transaction[Tx]) plain(ctx context.Context, tx Tx, q core.Querier) error {
	var a core.Reply
	if t.First != nil {
		a = t.First.Run(ctx, q)
	}
	if a.Err != nil {
		return a.Err
	}
	last, err := t.Then(ctx, tx, q, a)
	if err != nil {
		return err
	}
	if a = last.Run(ctx, q); a.Err == nil && a.Affected != 1 {
		return &holdfast.TxLostError{}
	}
	return a.Err
}

func (w *Writer[Tx]) send(ctx context.Context, opts core.TxOptions, t Transaction[Tx]) error {
	s, a, err := w.Access.Begin(ctx, opts, t.First)
	if err != nil {
		return err
	}
	within, end := core.Within(ctx)
	committed := false
	defer func() { end(committed) }()
	defer s.Rollback() // unless Finish has ended it
	if a.Err != nil {
		return a.Err
	}
	last, err := t.Then(within, s.Tx(), s, a)
	if err == nil {
		err = s.Finish(ctx, last)
	}
	committed = err == nil
	return err
}

// resolve runs a transaction until its outcome is certain.
func (w *Writer[Tx]) resolve(ctx context.Context, transact func() error) error {
	var unknown error
	end, pause := time.Now().Add(w.Wait), core.NewBackoff()
	for {
		err := transact()
		var inFunc *FuncError
		switch {
		case err == nil:
			return nil
		case errors.Is(err, holdfast.ErrRetry):
			return cmp.Or(unknown, err)
		case errors.As(err, &inFunc):
			return inFunc.Err
		case errors.Is(err, holdfast.ErrUnknown):
			unknown = err
		case unknown != nil && w.Access.Dialect.Disconnected(err) && !w.Answers(err):
			// try again until the wait is over
		case unknown != nil && !w.Answers(err):
			return unknown // this run has not seen what became of that commit
		default:
			return w.Explain(err)
		}
		if time.Now().After(end) || ctx.Err() != nil || pause.Sleep(ctx) != nil {
			return unknown
		}
	}
}
