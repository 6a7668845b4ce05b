package trace_test

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/internal/trace"
)

func outcome(err error) string {
	if err != nil {
		return trace.Failed
	}
	return trace.Done
}

// call has the shape of the traced calls.
func call(ctx context.Context, t *trace.Tracer) (n int, err error) {
	ctx, span := t.Start(ctx, trace.Call{Name: "lease.acquire", Lock: trace.LockLease, Waits: true})
	defer func() { span.End(err, func(err error) string { _ = n; return outcome(err) }) }()
	span.Rows = 1
	t.Emit(ctx, trace.Event{Name: trace.LeaseLost})
	if ctx.Err() != nil {
		return 1, ctx.Err()
	}
	return 0, nil
}

// TestNobodyListens checks that a call without a listening tracer allocates nothing.
func TestNobodyListens(t *testing.T) { //nolint:paralleltest // it counts allocations
	for _, tracer := range []*trace.Tracer{nil, {Outcome: outcome}} {
		if n := testing.AllocsPerRun(1000, func() { _, _ = call(t.Context(), tracer) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
}

type listener struct {
	calls  []trace.Call
	ends   []trace.CallResult
	events []trace.Event
}

type key struct{}

func (l *listener) Start(ctx context.Context, c trace.Call) (context.Context, func(trace.CallResult)) {
	l.calls = append(l.calls, c)
	return context.WithValue(ctx, key{}, l), func(e trace.CallResult) { l.ends = append(l.ends, e) }
}

func (l *listener) Event(_ context.Context, f trace.Event) { l.events = append(l.events, f) }

func TestAllAreTold(t *testing.T) {
	t.Parallel()
	one, other := &listener{}, &listener{}
	tracer := &trace.Tracer{Engine: "sqlite", Listeners: []trace.Listener{one, other}, Outcome: outcome}
	_, _ = call(t.Context(), tracer)
	_, _ = call(tracer.Quiet(t.Context()), tracer)
	for _, l := range []*listener{one, other} {
		if len(l.calls) != 1 || len(l.ends) != 1 || len(l.events) != 2 {
			t.Fatalf("%+v", l)
		}
		if l.calls[0].Engine != "sqlite" || l.events[0].Engine != "sqlite" || l.ends[0].Outcome != trace.Done || l.ends[0].Rows != 1 {
			t.Errorf("%+v", l)
		}
	}
}

// TestCauseOfTheProgram checks that a context that the program cancelled with a cause is
// reported as canceled.
func TestCauseOfTheProgram(t *testing.T) {
	t.Parallel()
	l := &listener{}
	tracer := &trace.Tracer{Listeners: []trace.Listener{l}, Outcome: outcome}
	ctx, cancel := context.WithCancelCause(t.Context())
	_, span := tracer.Start(ctx, trace.Call{})
	cause := errors.New("shutting down")
	cancel(cause)
	span.End(cause, nil)
	if l.ends[0].Outcome != trace.Canceled {
		t.Errorf("%+v", l.ends)
	}
}
