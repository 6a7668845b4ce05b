package businessrow

import (
	"cmp"
	"database/sql"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/errcode"
	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// Options configures a Table. The zero value of each field is its default.
type Options struct {
	// Compare lists the columns that distinguish one request from another with the same key. They
	// are compared in Go, as stored: pass values that the columns store unchanged (rounded, in
	// their precision). A claim with another value is [holdfast.ErrInvalid], and is rolled back. To
	// find that, a claim reads its row back once for each column and fineness of values; each time
	// for columns of types such as DATE, CHAR and REAL. Default: none; every row with the key is
	// the same request.
	Compare []string
	// Wait bounds how long Do waits for another process that claims its key, and how long it
	// resolves an unknown commit. Default: 10 s; 1 ms to 366 days.
	Wait time.Duration
	// Isolation, LockTimeout and Attempts configure the transactions of Do; see
	// [holdfast.TxOptions]. Attempts also bounds unknown commits.
	Isolation   sql.IsolationLevel
	LockTimeout time.Duration
	Attempts    int
}

func checkOptions(opts []Options) (Options, error) {
	o, err := options.One(opts)
	if err != nil {
		return o, err
	}
	if o.Wait == 0 {
		o.Wait = idempotency.DefaultWait
	}
	if o.Attempts == 0 {
		o.Attempts = core.DefaultAttempts
	}
	return o, cmp.Or(
		options.Wait.Check("Options.Wait", o.Wait),
		options.LockTimeout.Check("Options.LockTimeout", o.LockTimeout),
		options.Attempts.Check("Options.Attempts", int64(o.Attempts)),
		core.CheckIsolation("Options.Isolation", o.Isolation),
	)
}

// ErrUniqueViolation means that another unique key of the table, not the claimed one, refused the
// row. This is not a replay: a different row is in the way.
var ErrUniqueViolation = errcode.New("business-row-unique", "businessrow: another unique key of the table refused the row")

// inProgress converts an internal error to its public form.
func inProgress(err error, found ...core.Blocker) error {
	if p, is := err.(*once.InProgressError); is { //nolint:errorlint // it is never wrapped
		p.Blockers = core.Blockers[holdfast.Blocker](found)
		return (*idempotency.InProgressError)(p)
	}
	return err
}

// outcomeOf names the outcome of a call. It returns "" for outcomes that all packages share.
func outcomeOf(o idempotency.Outcome, err error) string {
	return once.OutcomeOf[*idempotency.Rejection](o == idempotency.Replayed, o == idempotency.Executed, err, []once.Name{
		{Err: idempotency.ErrInProgress, Name: trace.InProgress},
		{Err: idempotency.ErrMismatch, Name: trace.Mismatch},
		{Err: idempotency.ErrUnknown, Name: trace.Unknown},
		{Err: idempotency.ErrNested, Name: trace.Nested},
		{Err: ErrUniqueViolation, Name: trace.OtherKey},
	})
}
