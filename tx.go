package holdfast

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// Defaults and bounds of TxOptions.
const (
	DefaultLockTimeout = time.Second
	MaxLockTimeout     = time.Hour
	DefaultAttempts    = 10
)

// TxOptions are the settings of one transaction; the zero value is the default.
type TxOptions struct {
	// Isolation is the level to begin with. Default: the server's.
	Isolation sql.IsolationLevel
	// LockTimeout bounds each wait for a lock, on the server, and ends with
	// the transaction. It is rounded up to milliseconds on PostgreSQL and
	// SQLite, to whole seconds on MySQL and MariaDB. Default: a second. At
	// most an hour.
	LockTimeout time.Duration
	// Attempts bounds how often the transaction is run when the engine rolls
	// it back or a lock is not to be had. Default: 10.
	Attempts int
}

func (o TxOptions) withDefaults() (TxOptions, error) {
	if o.LockTimeout < 0 || o.LockTimeout > MaxLockTimeout {
		return o, &InputError{"TxOptions.LockTimeout", fmt.Sprintf("%v is not between 0 (default) and %v", o.LockTimeout, MaxLockTimeout)}
	}
	if o.Attempts < 0 {
		return o, &InputError{"TxOptions.Attempts", fmt.Sprintf("%d is negative; 0 is the default", o.Attempts)}
	}
	if o.LockTimeout == 0 {
		o.LockTimeout = DefaultLockTimeout
	}
	if o.Attempts == 0 {
		o.Attempts = DefaultAttempts
	}
	return o, nil
}

// InTx runs fn in a transaction and commits it. When the engine rolls it back
// (deadlock, serialization failure) or a lock is not to be had in time, the
// whole of it is run again with jittered pauses: fn may run more than once,
// and must have effects in the database only. fn's error rolls back and is
// returned. fn must not end the transaction itself.
//
// Errors: [ErrRetry] when the attempts are used up, [ErrTxLost], [ErrUnknown]
// (see the package's text), ctx's error, fn's own.
func (d *DB[Tx]) InTx(ctx context.Context, opts TxOptions, fn func(ctx context.Context, tx Tx) error) (err error) {
	ctx, op := d.trace.Start(ctx, trace.Call{Name: "transaction"})
	defer func() { op.End(err, nil) }()
	err = trace.ErrAborted // until it returns
	if opts, err = opts.withDefaults(); err != nil {
		return err
	}
	pause := core.NewBackoff()
	for n := 1; ; n++ {
		op.Attempts, err = n, trace.ErrAborted
		err = d.attempt(ctx, core.TxOptions{Isolation: opts.Isolation, LockTimeout: opts.LockTimeout},
			func(ctx context.Context, tx Tx, _ core.Querier) error { return fn(ctx, tx) })
		if err == nil || ctx.Err() != nil || !d.Retryable(err) {
			return err
		}
		if n == opts.Attempts {
			return &RetryError{Attempts: n, Err: err}
		}
		if err := pause.Sleep(ctx); err != nil {
			return err
		}
	}
}

// Retryable tells whether err, of a statement or a commit, means that the
// transaction is rolled back or has to be, and that the whole of it may be run
// again: a deadlock, a serialization failure, a lock that was not to be had, a
// node of a Galera cluster that takes no statements for now. It is false for a commit in doubt.
func (d *DB[Tx]) Retryable(err error) bool {
	switch {
	case err == nil, isAny(err, ErrUnknown, ErrTxLost):
		return false
	case isAny(err, ErrRetry):
		return true
	}
	c := d.dialect.Classify(err)
	return c == dialect.Retry || c == dialect.Busy || c == dialect.Unready
}

// Outcome is what became of a commit.
type Outcome int

// The three outcomes of a commit.
const (
	Unknown Outcome = iota
	Done
	NotDone
)

func (o Outcome) String() string { return [...]string{"unknown", "done", "not done"}[o] }

// CommitOutcome judges the error of a caller's own COMMIT, or of a write that
// commits by itself: nil is done, an allow-listed answer of the server is not
// done, everything else is unknown, whatever the driver says about retrying.
func (d *DB[Tx]) CommitOutcome(err error) Outcome {
	switch {
	case err == nil:
		return Done
	case d.dialect.RolledBack(err):
		return NotDone
	}
	return Unknown
}
