package holdfast

import (
	"context"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// Tracer is told of calls, statements and facts. What it is given is
// of few values and never has keys, tenants, tokens or results in it, except that
// the text of an error may: see [ErrorCode].
//
// Its methods are called on the goroutines that do the work. They must be quick,
// must not call Holdfast, and must be safe for concurrent use.
type Tracer interface {
	// Start is called when a call begins, and what it returns when the call
	// ends; nil if that is of no interest. The call's statements, calls within
	// it and the caller's function run under the context.
	Start(ctx context.Context, c Call) (context.Context, func(Ended))
	// Statement is called after each statement, as an [Observer] is.
	Statement(ctx context.Context, s Statement)
	// Fact is called when something happened that is no call's end.
	Fact(ctx context.Context, f Fact)
}

// Call is a call of one of Holdfast's functions. Those that only look (Inspect,
// List, Show) are not told of, but their statements are.
type Call struct {
	// Name is the function's, such as "lease.acquire"; docs/observability.md
	// lists them.
	Name string
	// Engine is the DB's [Engine].
	Engine string
	// Operation is the name that the program gave an idempotent operation, such
	// as "refund", or its table; empty for other calls.
	Operation string
	// Lock is the kind of lock: "lease", "fair", "shared", "semaphore", "hold";
	// empty for other calls.
	Lock string
	// Waits: it waits for a lock, as long as its context lasts.
	Waits bool
	// Background: it is Holdfast's own, and nobody's call.
	Background bool
}

// Ended is the end of a [Call].
type Ended struct {
	// Outcome is "executed", "replayed", "unknown" and so on; the call's
	// function says which there are, docs/observability.md lists them.
	Outcome string
	// Duration is that of the call, by the monotonic clock.
	Duration time.Duration
	// Rows is how many rows it was about, of calls on many; Attempts how often
	// a transaction was run, 0 where it was not counted.
	Rows     int64
	Attempts int
	// Err is the call's error. Its text may have keys in it.
	Err error
}

// Fact is something that happened.
type Fact struct {
	// Name is "lease.granted", "lease.ended", "lease.lost", "reaper.task",
	// "reaper.refused" or "staged.parked".
	Name string
	// Engine, Lock and Operation are as in [Call].
	Engine, Lock, Operation string
	// Task is what the reaper cleared, as in its report.
	Task string
	// Outcome is "released", "lost" or "closed" of a lease that ended; of a
	// reaper's task "cleared" or "passed".
	Outcome string
	// Cause of a lost lease: "expired" (no renewal was committed in time),
	// "taken" (the row is another's, or it was taken away), "release" (found
	// at its release), "connection" (of a Hold).
	Cause string
	// Count is of rows, or of staged operations.
	Count int64
	// Duration is for how long a lease was held; how long ago the oldest row
	// that a reaper's task found had expired; how far the clock leapt.
	Duration time.Duration
	// Err is what led to it; it may be nil. Its text may have keys in it.
	Err error
}

// WithTracer has calls, statements and facts reported. It may be given several times.
func WithTracer(t Tracer) Option {
	return func(o *options) {
		if t == nil {
			return
		}
		o.tracers = append(o.tracers, listener{t})
		o.observers = append(o.observers, t.Statement)
	}
}

// ErrorCode is the server's code for err: a SQLSTATE, or the number of an error
// of MySQL, MariaDB or SQLite; empty when there is none. Unlike the text of an
// error, which may quote keys and values, it may be logged.
func ErrorCode(err error) string {
	if err == nil {
		return ""
	}
	if state := dialect.SQLState(err); state != "" {
		return state
	}
	if n := dialect.MySQLNumber(err); n != 0 {
		return strconv.Itoa(int(n))
	}
	if n := dialect.SQLiteCode(err); n != 0 {
		return strconv.Itoa(n)
	}
	return ""
}

// listener is a Tracer as the other packages see it.
type listener struct{ t Tracer }

func (l listener) Start(ctx context.Context, c trace.Call) (context.Context, func(trace.Ended)) {
	ctx, end := l.t.Start(ctx, Call(c))
	if end == nil {
		return ctx, nil
	}
	return ctx, func(e trace.Ended) { end(Ended(e)) }
}

func (l listener) Fact(ctx context.Context, f trace.Fact) { l.t.Fact(ctx, Fact(f)) }

// outcome names the errors that all packages share.
func outcome(err error) string {
	if err == nil {
		return trace.Done
	}
	for _, o := range []struct {
		is   error
		name string
	}{
		{trace.ErrAborted, trace.Aborted},
		{ErrUnknown, trace.Unknown},
		{ErrTxLost, trace.TxLost},
		{ErrRetry, trace.RolledBack},
		{ErrInvalid, trace.Invalid},
		{ErrNoTx, trace.Invalid},
		{ErrSchema, trace.Schema},
		{ErrUnsupported, trace.Unsupported},
		{context.Canceled, trace.Canceled},
		{context.DeadlineExceeded, trace.TimedOut},
	} {
		if isAny(err, o.is) {
			return o.name
		}
	}
	return trace.Failed
}
