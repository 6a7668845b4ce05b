package holdfast

import (
	"cmp"
	"context"
	"database/sql"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// TxOptions are the settings of one transaction. The zero value is the default.
type TxOptions struct {
	// Isolation is the isolation level. READ UNCOMMITTED is an error. Default: the session's,
	// but at least READ COMMITTED.
	Isolation sql.IsolationLevel
	// LockTimeout bounds each wait for a lock, on the server. It is rounded up to milliseconds
	// on PostgreSQL and SQLite, and to seconds on MySQL and MariaDB. 1 ms to an hour. Default:
	// a second. On PostgreSQL it is two seconds more than the server's deadlock_timeout,
	// 3 s if that is not changed: after deadlock_timeout the server chooses one transaction of a
	// deadlock, and after a shorter LockTimeout all of them would give up.
	LockTimeout time.Duration
	// Attempts is the maximum number of runs when the engine rolls the transaction back or a
	// lock times out. Default: 10. At most 1,000,000.
	Attempts int
}

func oneTxOptions(opts []TxOptions) (TxOptions, error) {
	o, err := options.One(opts)
	if err != nil {
		return o, err
	}
	return o.withDefaults()
}

func (o TxOptions) withDefaults() (TxOptions, error) {
	if err := options.LockTimeout.Check("TxOptions.LockTimeout", o.LockTimeout); err != nil {
		return o, err
	}
	if err := core.CheckIsolation("TxOptions.Isolation", o.Isolation); err != nil {
		return o, err
	}
	if err := options.Attempts.Check("TxOptions.Attempts", int64(o.Attempts)); err != nil {
		return o, err
	}
	if o.Attempts == 0 {
		o.Attempts = core.DefaultAttempts
	}
	return o, nil
}

// InTx runs fn in a transaction and commits it. When fn returns an error, InTx rolls back and
// returns that error. When the engine rolls the transaction back (deadlock, serialization
// failure) or a lock times out, InTx pauses and runs fn again, so fn must have effects in the
// database only. The pause is random: up to the time that the attempt took, and after further attempts
// up to four times as long, at most 5 s. Transactions that met in a deadlock seldom meet again. fn must
// not end the transaction.
//
// Errors: [ErrRetry] after the last attempt; [ErrTxLost], [ErrRowsOpen] and [ErrUnknown] from
// the commit; [ErrReadOnly] and [ErrDenied] from a statement; [ErrInvalid]; the cause of ctx;
// errors of fn.
func (d *DB[Tx]) InTx(ctx context.Context, fn func(ctx context.Context, tx Tx) error, opts ...TxOptions) (err error) {
	ctx, op := d.trace.Start(ctx, trace.Call{Name: "transaction"})
	defer func() { op.End(err, nil) }()
	o, err := oneTxOptions(opts)
	if err != nil {
		return err
	}
	o.LockTimeout = cmp.Or(o.LockTimeout, d.dialect.LockTimeout, core.DefaultLockTimeout)
	err = trace.ErrAborted // if fn panics or ends its goroutine
	exhausted, result := core.RetryTx(ctx, o.Attempts, d.Retryable, func(attempt int) error {
		op.Attempts = attempt
		return d.attempt(ctx, core.TxOptions{Isolation: o.Isolation, LockTimeout: o.LockTimeout}, nil,
			func(ctx context.Context, tx Tx, _ core.Querier, _ core.Reply) error { return fn(ctx, tx) })
	})
	if exhausted {
		return &RetryError{Attempts: o.Attempts, Err: result}
	}
	return d.explain(result)
}

// Retryable reports whether a transaction that failed with err may run again as a whole. It
// returns true if err, from a statement or a commit, is a deadlock, a serialization failure, a
// lock timeout, a time limit of the server, or a Galera node that accepts no statements now.
// It returns false for a commit whose outcome is unknown.
func (d *DB[Tx]) Retryable(err error) bool {
	switch {
	case err == nil, isAny(err, ErrUnknown, ErrTxLost, ErrRowsOpen):
		return false
	case isAny(err, ErrRetry, core.ErrAgain):
		return true
	}
	c := d.dialect.Classify(err)
	return c == dialect.Retry || c == dialect.Busy || c == dialect.Unready
}

// CommitOutcome is the outcome of a commit.
type CommitOutcome int

// The three outcomes of a commit.
const (
	Unknown CommitOutcome = iota
	Done
	NotDone
)

func (o CommitOutcome) String() string { return [...]string{"unknown", "done", "not done"}[o] }

// CommitOutcome returns the outcome of a COMMIT that the caller sent, or of a write in
// autocommit, from its error: nil is Done, a rollback code of the server is NotDone, and every
// other error is Unknown, regardless of what the driver says about retrying. Of several statements in one text, and of a
// CALL, NotDone says only that the last one was not done: those before it may be committed.
func (d *DB[Tx]) CommitOutcome(err error) CommitOutcome {
	switch {
	case err == nil:
		return Done
	case d.dialect.RolledBack(err):
		return NotDone
	}
	return Unknown
}

// Forever is a time without an end, NoWait is a wait that is over at once, and Unlimited is a number without
// a bound, for the options and parameters that say so.
const (
	Forever   time.Duration = -1
	NoWait    time.Duration = -2
	Unlimited int           = -1
)
