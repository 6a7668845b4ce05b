// Package holdfastslog logs Holdfast's work to a logger of log/slog.
//
//	db, err := holdfastsql.Open(ctx, pool, holdfast.Options{Tracers: []holdfast.Tracer{holdfastslog.New(slog.Default())}})
//
// Messages and field names are stable; docs/reference/observability.md lists them. No record contains a key,
// an owner (the tenant, merchant or account whose operation it is), a holder, a token or a result.
// Errors are logged by their type and the server's code, because their text may quote any of these.
//
// Levels: Error for what waits for a person: an operation that was parked, and a sweep that the reaper
// refused. Warn for a commit whose outcome is unknown, which the next call with its key resolves, a
// lease that was lost, a function that panicked, a transaction that ended outside of Holdfast's control,
// a schema that does not fit, and errors that are not Holdfast's own. Info for a staged operation that
// will be tried again. Debug for all other records. [LevelStatement] for statements.
package holdfastslog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// LevelStatement is the level of statements: below Debug.
const LevelStatement = slog.LevelDebug - 4

// New returns a tracer that logs to l. If l is nil, each record goes to the slog.Default() of that
// moment.
func New(l *slog.Logger) holdfast.Tracer { return &tracer{l} }

type tracer struct{ l *slog.Logger }

func (t *tracer) logger() *slog.Logger {
	if t.l == nil {
		return slog.Default()
	}
	return t.l
}

// Start implements holdfast.Tracer.
func (t *tracer) Start(ctx context.Context, c holdfast.Call) (context.Context, func(holdfast.CallResult)) {
	return ctx, func(e holdfast.CallResult) {
		level := levelOf(e.Outcome)
		l := t.logger()
		if !l.Enabled(ctx, level) {
			return
		}
		a := attrs{slog.String("call", c.Name), slog.String("outcome", e.Outcome), slog.Duration("duration", e.Duration)}
		a.text("engine", c.Engine)
		a.text("operation", c.Operation)
		a.text("lock", c.Lock)
		a.number("rows", e.Rows)
		a.number("attempts", int64(e.Attempts))
		a.failure(e.Err)
		l.LogAttrs(ctx, level, "holdfast: call", a...)
	}
}

// Statement implements holdfast.Tracer.
func (t *tracer) Statement(ctx context.Context, s holdfast.Statement) {
	l := t.logger()
	if !l.Enabled(ctx, LevelStatement) {
		return
	}
	a := attrs{slog.String("statement", s.Name), slog.String("command", s.Command), slog.Duration("duration", s.Duration)}
	a.text("engine", s.Engine)
	a.failure(s.Err)
	l.LogAttrs(ctx, LevelStatement, "holdfast: statement", a...)
}

// Event implements holdfast.Tracer.
func (t *tracer) Event(ctx context.Context, f holdfast.Event) {
	level := slog.LevelDebug
	switch f.Name {
	case trace.ReaperRefused:
		level = slog.LevelError
	case trace.StagedParked, trace.OutboxDead:
		level = slog.LevelError
	case trace.LeaseLost, trace.WaitFailed, trace.ServerUnproven:
		level = slog.LevelWarn
	case trace.SimilarAgain, trace.Unkeyed:
		level = slog.LevelInfo
	}
	l := t.logger()
	if !l.Enabled(ctx, level) {
		return
	}
	a := attrs{slog.String("fact", f.Name)}
	a.text("engine", f.Engine)
	a.text("lock", f.Lock)
	a.text("operation", f.Operation)
	a.text("task", f.Task)
	a.text("outcome", f.Outcome)
	a.text("cause", f.Cause)
	a.number("count", f.Count)
	switch f.Name {
	case trace.ReaperRefused:
		a = append(a, slog.Duration("jump", f.Duration))
	case trace.ServerUnproven:
		a = append(a, slog.Duration("left", f.Duration))
	case trace.ReaperTask:
		a = append(a, slog.Duration("oldest", f.Duration))
	case trace.LeaseEnded:
		a = append(a, slog.Duration("duration", f.Duration))
	}
	a.failure(f.Err)
	l.LogAttrs(ctx, level, "holdfast: "+f.Name, a...)
}

func levelOf(outcome string) slog.Level {
	switch outcome {
	case trace.Refused, trace.Unfinished:
		return slog.LevelError
	case trace.Retrying:
		return slog.LevelInfo
	case trace.Unknown, trace.Failed, trace.TxLost, trace.Schema, trace.Aborted:
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// attrs is a list of attributes without empty values.
type attrs []slog.Attr

func (a *attrs) text(key, value string) {
	if value != "" {
		*a = append(*a, slog.String(key, value))
	}
}

func (a *attrs) number(key string, n int64) {
	if n != 0 {
		*a = append(*a, slog.Int64(key, n))
	}
}

// failure adds the parts of an error that may be logged.
func (a *attrs) failure(err error) {
	if err == nil {
		return
	}
	*a = append(*a, slog.String("error_type", fmt.Sprintf("%T", err)))
	a.text("error_code", holdfast.ServerCode(err))
	if root := rootOf(err); root != err { //nolint:errorlint // it is the same one
		*a = append(*a, slog.String("error_root", fmt.Sprintf("%T", root)))
	}
}

// rootOf returns the innermost error: the driver's, if there is one.
func rootOf(err error) error {
	for {
		many, ok := err.(interface{ Unwrap() []error })
		if ok && len(many.Unwrap()) > 0 {
			err = many.Unwrap()[0]
			continue
		}
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}
