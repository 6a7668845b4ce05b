// Package trace is how Holdfast's packages tell of their calls, to whoever
// listens. Where nobody does it costs a comparison and no memory.
package trace

import (
	"context"
	"errors"
	"time"
)

// Call is holdfast.Call, which says what the fields mean.
type Call struct {
	Name, Engine, Operation, Lock string
	Waits, Background             bool
}

// Ended is holdfast.Ended.
type Ended struct {
	Outcome  string
	Duration time.Duration
	Rows     int64
	Attempts int
	Err      error
}

// Fact is holdfast.Fact.
type Fact struct {
	Name, Engine, Lock, Operation, Task, Outcome, Cause string
	Count                                               int64
	Duration                                            time.Duration
	Err                                                 error
}

// Listener is one who listens.
type Listener interface {
	Start(ctx context.Context, c Call) (context.Context, func(Ended))
	Fact(ctx context.Context, f Fact)
}

// Tracer tells the listeners of one DB.
type Tracer struct {
	Engine    string
	Listeners []Listener
	// Outcome names the errors that all packages share.
	Outcome func(err error) string
}

// ErrAborted is the error of a call until it returns: that of one whose
// function panicked or ended its goroutine.
var ErrAborted = errors.New("the call did not return")

// On is whether anybody listens.
func (t *Tracer) On() bool { return t != nil && len(t.Listeners) > 0 }

// Tell tells of a fact.
func (t *Tracer) Tell(ctx context.Context, f Fact) {
	if !t.On() {
		return
	}
	f.Engine = t.Engine
	for _, l := range t.Listeners {
		l.Fact(ctx, f)
	}
}

// Span is a call under way.
type Span struct {
	// Rows and Attempts are told at the end.
	Rows     int64
	Attempts int

	tracer *Tracer // nil: nobody listens
	ctx    context.Context
	start  time.Time
	ends   []func(Ended)
}

type quietKey struct{}

// Quiet keeps calls that a call makes of its own from being told of.
func (t *Tracer) Quiet(ctx context.Context) context.Context {
	if !t.On() {
		return ctx
	}
	return context.WithValue(ctx, quietKey{}, true)
}

// Start tells of a call that begins. What it does runs under the context.
func (t *Tracer) Start(ctx context.Context, c Call) (context.Context, Span) {
	if !t.On() || ctx.Value(quietKey{}) != nil {
		return ctx, Span{}
	}
	c.Engine = t.Engine
	s := Span{tracer: t, start: time.Now(), ends: make([]func(Ended), 0, len(t.Listeners))}
	for _, l := range t.Listeners {
		var end func(Ended)
		if ctx, end = l.Start(ctx, c); end != nil {
			s.ends = append(s.ends, end)
		}
	}
	s.ctx = ctx
	return ctx, s
}

// End tells of its end. outcome names err, nil included; "" has the errors that
// all packages share named.
func (s *Span) End(err error, outcome func(err error) string) {
	if s.tracer == nil {
		return
	}
	e := Ended{Duration: time.Since(s.start), Rows: s.Rows, Attempts: s.Attempts, Err: err}
	if !errors.Is(err, ErrAborted) && outcome != nil {
		e.Outcome = outcome(err)
	}
	if e.Outcome == "" {
		e.Outcome = s.tracer.Outcome(err)
	}
	if e.Outcome == Failed && s.ctx.Err() != nil {
		e.Outcome = Canceled // its cause is the program's own
	}
	for _, end := range s.ends {
		end(e)
	}
}
