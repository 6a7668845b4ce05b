package optimistic

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// RetryOptions are the settings of [Retry]; the zero value is the default.
type RetryOptions struct {
	// Attempts bounds how often the function is run. Default:
	// holdfast.DefaultAttempts (10).
	Attempts int
	// Isolation is the level of each transaction. Default: the server's.
	Isolation sql.IsolationLevel
	// LockTimeout bounds each wait for a lock, as in holdfast.TxOptions.
	// Default: holdfast.DefaultLockTimeout (1 s).
	LockTimeout time.Duration
}

// Retry runs fn, which reads rows, changes them and writes them, in a
// transaction and commits it. After [ErrConflict], or when the engine rolled
// back (deadlock, serialization failure) or a lock was not to be had, the whole
// of it is run again in a new transaction after a jittered pause. fn may run
// more than once, must read anew each time what it writes, and must have
// effects in the database only.
//
// There is no form of it inside a caller's transaction: that one cannot be
// begun again, and under REPEATABLE READ it would read the same old version
// for ever.
//
// Errors: [holdfast.ErrRetry] when the attempts are used up, with the last
// conflict within it (errors.Is(err, ErrConflict) holds then);
// an update that [Table.Enforce] refused counts as a conflict;
// [holdfast.ErrUnknown], which is not retried; [holdfast.ErrTxLost] when fn
// went on after an error of this package's; ctx's, fn's own.
func Retry[Tx any](ctx context.Context, db *holdfast.DB[Tx], opts RetryOptions, fn func(ctx context.Context, tx Tx) error) (err error) {
	if db == nil {
		return invalid("db", "is nil")
	}
	ctx, span := workOn(db).tell(ctx, "version.retry")
	defer func() { span.End(err, outcome) }()
	err = trace.ErrAborted // until it returns
	switch {
	case opts.Attempts < 0:
		return invalid("RetryOptions.Attempts", fmt.Sprintf("%d is negative; 0 is the default", opts.Attempts))
	case opts.Attempts == 0:
		opts.Attempts = holdfast.DefaultAttempts
	}
	once := holdfast.TxOptions{Isolation: opts.Isolation, LockTimeout: opts.LockTimeout, Attempts: 1}
	pause := core.NewBackoff()
	for n := 1; ; n++ {
		span.Attempts, err = n, trace.ErrAborted
		err = AsConflict(db, db.InTx(ctx, once, fn))
		if err == nil || ctx.Err() != nil || !again(db, err) {
			return err
		}
		if n == opts.Attempts {
			return &holdfast.RetryError{Attempts: n, Err: cause(err)}
		}
		if err := pause.Sleep(ctx); err != nil {
			return err
		}
	}
}

// again: nothing happened, and another run may do better.
func again[Tx any](db *holdfast.DB[Tx], err error) bool {
	if errors.Is(err, holdfast.ErrUnknown) || errors.Is(err, holdfast.ErrTxLost) {
		return false
	}
	return errors.Is(err, ErrConflict) || db.Retryable(err)
}

// cause takes off what counts the attempts of the layers below.
func cause(err error) error {
	for {
		r, ok := err.(*holdfast.RetryError) //nolint:errorlint // only the outermost layers
		if !ok {
			return err
		}
		err = r.Err
	}
}
