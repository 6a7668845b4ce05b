package optimistic

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// RetryOptions configure [Retry]. The zero value of each field is its default.
type RetryOptions struct {
	// Attempts is the maximum number of runs of the function. Default:
	// 10; at most 1,000,000.
	Attempts int
	// Isolation is the level of each transaction. Default: the server's.
	Isolation sql.IsolationLevel
	// LockTimeout bounds each wait for a lock, as in holdfast.TxOptions.
	// Default: a second.
	LockTimeout time.Duration
}

// Retry runs fn in a transaction and commits it. fn reads rows, changes them and writes
// them. After [ErrConflict], after a rollback by the engine (deadlock, serialization
// failure), or when a lock could not be acquired in time, Retry pauses and runs fn
// again in a new transaction. So fn must be safe to run more than once: it must read
// again what it writes, and have effects in the database only.
//
// Errors: [holdfast.ErrRetry] when the attempts are used up, with the last conflict
// within it (errors.Is(err, ErrConflict) holds then); [holdfast.ErrUnknown], which is
// not retried; [holdfast.ErrTxLost] when fn went on after an error of this package;
// [holdfast.ErrInvalid]; the error of ctx; the error of fn. An update that
// [Table.Enforce] refused counts as a conflict.
func Retry[Tx any](ctx context.Context, db *holdfast.DB[Tx], fn func(ctx context.Context, tx Tx) error, opts ...RetryOptions) (err error) {
	if db == nil {
		return invalid("db", "is nil")
	}
	o, err := options.One(opts)
	if err != nil {
		return err
	}
	ctx, span := access.Of(db).Trace.Start(ctx, trace.Call{Name: "version.retry"})
	defer func() { span.End(err, outcome) }()
	err = trace.ErrAborted // until fn returns
	if err := options.Attempts.Check("RetryOptions.Attempts", int64(o.Attempts)); err != nil {
		return err
	}
	if o.Attempts == 0 {
		o.Attempts = core.DefaultAttempts
	}
	once := holdfast.TxOptions{Isolation: o.Isolation, LockTimeout: o.LockTimeout, Attempts: 1}
	exhausted, last := core.Retry(ctx, o.Attempts, retryable(db), func(n int) error {
		span.Attempts = n
		return AsConflict(db, db.InTx(ctx, fn, once))
	})
	if exhausted {
		return &holdfast.RetryError{Attempts: o.Attempts, Err: cause(last)}
	}
	return last
}

// retryable reports that nothing was committed and that another run may succeed.
func retryable[Tx any](db *holdfast.DB[Tx]) func(error) bool {
	return func(err error) bool {
		if errors.Is(err, holdfast.ErrUnknown) || errors.Is(err, holdfast.ErrTxLost) {
			return false
		}
		return errors.Is(err, ErrConflict) || db.Retryable(err)
	}
}

// cause unwraps the RetryErrors of the layers below, which count their own attempts.
func cause(err error) error {
	for {
		r, ok := err.(*holdfast.RetryError) //nolint:errorlint // only the outermost layers
		if !ok {
			return err
		}
		err = r.Err
	}
}
