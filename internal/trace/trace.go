// Package trace passes the calls and events of Holdfast's packages to listeners.
// Without a listener it costs one comparison and no memory.
package trace

import (
	"context"
	"errors"
	"time"
)

// Call is holdfast.Call; its fields are documented there.
type Call struct {
	Name, Engine, Operation, Lock string
	Waits, Background             bool
}

// CallResult is holdfast.CallResult.
type CallResult struct {
	Outcome  string
	Duration time.Duration
	Rows     int64
	Attempts int
	Err      error
	Original string
}

// Event is holdfast.Event.
type Event struct {
	Name, Engine, Lock, Operation, Task, Outcome, Cause string
	Count                                               int64
	Duration                                            time.Duration
	Err                                                 error
}

// Listener receives calls and events.
type Listener interface {
	Start(ctx context.Context, c Call) (context.Context, func(CallResult))
	Event(ctx context.Context, f Event)
}

// Tracer passes calls and events to the listeners of one DB.
type Tracer struct {
	Engine    string
	Listeners []Listener
	// Outcome returns the outcome names of the errors that all packages share.
	Outcome func(err error) string
}

// ErrAborted is the error of a call that has not returned. It stays the error if the function
// panics or ends its goroutine.
var ErrAborted = errors.New("the call did not return")

// On reports whether there is a listener.
func (t *Tracer) On() bool { return t != nil && len(t.Listeners) > 0 }

// Emit passes an event to the listeners.
func (t *Tracer) Emit(ctx context.Context, f Event) {
	if !t.On() {
		return
	}
	f.Engine = t.Engine
	for _, l := range t.Listeners {
		l.Event(ctx, f)
	}
}

// Span is a call in progress.
type Span struct {
	// Rows and Attempts are reported at the end.
	Rows     int64
	Attempts int
	// Original is the request whose result the call replays.
	Original string

	tracer *Tracer // nil: there is no listener
	ctx    context.Context
	start  time.Time
	ends   []func(CallResult)
}

type quietKey struct{}

// Quiet returns a context under which calls are not reported. A call uses it for the calls
// that it makes itself.
func (t *Tracer) Quiet(ctx context.Context) context.Context {
	if !t.On() {
		return ctx
	}
	return context.WithValue(ctx, quietKey{}, true)
}

// Start reports the start of a call. The call must run under the returned context.
func (t *Tracer) Start(ctx context.Context, c Call) (context.Context, Span) {
	if !t.On() || ctx.Value(quietKey{}) != nil {
		return ctx, Span{}
	}
	c.Engine = t.Engine
	s := Span{tracer: t, start: time.Now(), ends: make([]func(CallResult), 0, len(t.Listeners))}
	for _, l := range t.Listeners {
		var end func(CallResult)
		if ctx, end = l.Start(ctx, c); end != nil {
			s.ends = append(s.ends, end)
		}
	}
	s.ctx = ctx
	return ctx, s
}

// End reports the end of the call. outcome returns the outcome name of err, which may be nil.
// If outcome returns "" or is nil, Tracer.Outcome names err.
func (s *Span) End(err error, outcome func(err error) string) {
	if s.tracer == nil {
		return
	}
	e := CallResult{Duration: time.Since(s.start), Rows: s.Rows, Attempts: s.Attempts, Original: s.Original, Err: err}
	if !errors.Is(err, ErrAborted) && outcome != nil {
		e.Outcome = outcome(err)
	}
	if e.Outcome == "" {
		e.Outcome = s.tracer.Outcome(err)
	}
	if e.Outcome == Failed && s.ctx.Err() != nil {
		e.Outcome = Canceled // the context's cause is an error of the program
	}
	for _, end := range s.ends {
		end(e)
	}
}
