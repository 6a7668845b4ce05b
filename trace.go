package holdfast

import (
	"context"
	"log/slog"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// Tracer receives calls, statements and events. Their attributes have low cardinality and
// never contain keys, owners, tokens or results. The text of an error may contain them: log
// its [ServerCode] instead.
//
// The methods run on the goroutines that do the work. They must be quick, must not call
// Holdfast, and must be safe for concurrent use. A panic is logged with slog.Default and ends nothing.
type Tracer interface {
	// Start is called when a call begins. The function that it returns, if not nil, is called
	// when the call ends. The call's statements, the calls within it and the caller's function
	// run under the context that Start returns.
	Start(ctx context.Context, c Call) (context.Context, func(CallResult))
	// Statement is called after each statement, as an [Observer] is.
	Statement(ctx context.Context, s Statement)
	// Event is called for events that are not the end of a call.
	Event(ctx context.Context, f Event)
}

// Call describes a call of one of Holdfast's functions. Functions that only read (Inspect,
// List, Show) report their statements, but no call.
type Call struct {
	// Name names the function, such as "lease.acquire". docs/reference/observability.md lists all names.
	Name string
	// Engine is the DB's [Engine].
	Engine string
	// Operation is the name of the idempotent operation, such as "refund", or of its table. It
	// is empty for other calls.
	Operation string
	// Lock is the kind of lock: "lease", "fair", "shared", "semaphore", "hold"; empty for
	// other calls.
	Lock string
	// Waits is true for a call that waits for a lock until its context ends.
	Waits bool
	// Background is true for work that Holdfast does on its own, such as a renewal.
	Background bool
}

// CallResult describes the end of a [Call].
type CallResult struct {
	// Outcome is "executed", "replayed", "unknown" and so on. The documentation of each
	// function lists its outcomes; docs/reference/observability.md lists all.
	Outcome string
	// Duration is the duration of the call, by the monotonic clock.
	Duration time.Duration
	// Rows counts the rows of a call on many rows. Attempts counts how often the transaction
	// ran; it is 0 if the call does not count attempts.
	Rows     int64
	Attempts int
	// Err is the error of the call. Its text may contain keys.
	Err error
	// Original is the request for which an operation was executed that this call replays (see
	// WithRequestID); empty if it is not known.
	Original string
}

// Event describes an event that is not the end of a call.
type Event struct {
	// Name is "lease.granted", "lease.ended", "lease.lost", "lock.wait_failed", "reaper.task",
	// "reaper.refused", "staged.parked", "outbox.dead", "similar.again", "http.unkeyed" or
	// "server.unproven".
	Name string
	// Engine, Lock and Operation are as in [Call].
	Engine, Lock, Operation string
	// Task names the rows that the reaper cleared, as in its report.
	Task string
	// Outcome is "released", "lost" or "closed" for a lease that ended, "cleared" or "passed" for
	// a task of the reaper, and "confirmed" or "reported" for an operation that was executed
	// though a similar one had been (see idempotency.Similar), "missing" or "malformed" for the key
	// of a request that was served without one.
	Outcome string
	// Cause is the cause of a lost lease: "expired" (no renewal was committed in time),
	// "taken" (another attempt has the row, or the lock was taken away), "release" (the loss was
	// found at release), "connection" (of a Hold).
	Cause string
	// Count is a number of rows, of staged operations or of messages.
	Count int64
	// Duration depends on the event: how long a lease was held, how long ago the oldest row of
	// a reaper task had expired, how far the clock jumped, or how long Open still accepts a server on which
	// nothing was proven.
	Duration time.Duration
	// Err is the cause of the event. It may be nil. Its text may contain keys.
	Err error
}

// ServerCode returns the server's code for err: a SQLSTATE, or the number of a MySQL, MariaDB
// or SQLite error. It returns "" if err has no code. The text of an error may quote keys and
// values; its code is safe to log.
func ServerCode(err error) string {
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

func listeners(tracers []Tracer) []trace.Listener {
	all := make([]trace.Listener, len(tracers))
	for i, t := range tracers {
		all[i] = listener{t}
	}
	return all
}

// listener adapts a Tracer to the type that the other packages use.
type listener struct{ t Tracer }

func (l listener) Start(outer context.Context, c trace.Call) (ctx context.Context, end func(trace.CallResult)) {
	ctx = outer // if it panics
	defer caught(outer, "Tracer.Start")
	ctx, ends := l.t.Start(outer, Call(c))
	if ends == nil {
		return ctx, nil
	}
	return ctx, func(e trace.CallResult) {
		defer caught(outer, "Tracer.Start: the end of a call")
		ends(CallResult(e))
	}
}

func (l listener) Event(ctx context.Context, f trace.Event) {
	defer caught(ctx, "Tracer.Event")
	l.t.Event(ctx, Event(f))
}

// caught logs the panic of a tracer or an observer. They also run on Holdfast's own goroutines, where a panic
// would end the process.
func caught(ctx context.Context, what string) {
	if p := recover(); p != nil {
		slog.ErrorContext(ctx, "holdfast: "+what+" panicked", "panic", p, "stack", string(debug.Stack()))
	}
}

// outcome returns the outcome names of the errors that all packages share.
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
