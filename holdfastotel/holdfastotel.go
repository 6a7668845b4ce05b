// Package holdfastotel makes OpenTelemetry metrics and spans of what Holdfast
// does. It is a module of its own, so that a program without it has nothing of
// OpenTelemetry in its go.mod.
//
//	tracer, err := holdfastotel.New() // the global providers
//	if err != nil {
//		return err
//	}
//	db, err := holdfastsql.Open(ctx, pool, holdfast.WithTracer(tracer))
//
// Each call is a span; its statements, and calls and the program's own work
// within it, are the span's children. docs/observability.md lists all metrics,
// spans and attributes. None has a key, a tenant, a holder, a token, a result or
// the text of an error in it.
//
// Spans of statements follow the semantic conventions for database client spans
// of version 1.43.0 (db.system.name, db.operation.name, db.query.summary,
// db.response.status_code, error.type). Their duration is a metric of Holdfast's
// own, because a program that instruments its driver too would count each
// statement twice in db.client.operation.duration.
package holdfastotel

import (
	"context"
	"fmt"
	"slices"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
)

// Scope is the name of the instrumentation scope.
const Scope = "github.com/holdfast-go/holdfast/holdfastotel"

// Option changes what New makes.
type Option func(*options)

type options struct {
	meters     metric.MeterProvider
	tracers    trace.TracerProvider
	statements bool
}

// WithMeterProvider is for another one than the global one.
func WithMeterProvider(p metric.MeterProvider) Option { return func(o *options) { o.meters = p } }

// WithTracerProvider is for another one than the global one.
func WithTracerProvider(p trace.TracerProvider) Option { return func(o *options) { o.tracers = p } }

// WithoutStatementSpans has no spans made of statements, as where the driver is
// instrumented. Their metric stays.
func WithoutStatementSpans() Option { return func(o *options) { o.statements = false } }

// New makes what holdfast.WithTracer takes. One is enough for all DBs of a process.
//
// Errors: those of the meter, of an instrument that it does not take.
func New(opts ...Option) (holdfast.Tracer, error) {
	o := options{meters: otel.GetMeterProvider(), tracers: otel.GetTracerProvider(), statements: true}
	for _, f := range opts {
		f(&o)
	}
	m, err := newInstruments(o.meters.Meter(Scope))
	if err != nil {
		return nil, fmt.Errorf("holdfastotel: %w", err)
	}
	return &tracer{tracer: o.tracers.Tracer(Scope), instruments: m, statements: o.statements}, nil
}

type tracer struct {
	*instruments

	tracer     trace.Tracer
	statements bool
}

// Start implements holdfast.Tracer.
func (t *tracer) Start(ctx context.Context, c holdfast.Call) (context.Context, func(holdfast.Ended)) {
	about := callAttributes(c)
	outer := ctx
	ctx, span := t.tracer.Start(ctx, "holdfast "+c.Name, trace.WithSpanKind(trace.SpanKindInternal), trace.WithAttributes(about...))
	lock := metric.WithAttributeSet(attribute.NewSet(lockKey.String(c.Lock), system(c.Engine)))
	if c.Waits {
		t.waiting.Add(outer, 1, lock)
	}
	return ctx, func(e holdfast.Ended) {
		outcome := outcomeKey.String(e.Outcome)
		with := metric.WithAttributeSet(attribute.NewSet(append(slices.Clip(about), outcome)...))
		t.calls.Record(ctx, e.Duration.Seconds(), with)
		if c.Waits {
			t.waiting.Add(ctx, -1, lock)
			t.waits.Record(ctx, e.Duration.Seconds(), lock, metric.WithAttributes(outcome))
		}
		if e.Attempts > 1 {
			t.retries.Add(ctx, int64(e.Attempts-1), metric.WithAttributes(callKey.String(c.Name), system(c.Engine)))
		}
		if c.Background && c.Lock != "" {
			t.renewed.Add(ctx, e.Rows, lock)
		}
		endCall(span, e)
	}
}

// Statement implements holdfast.Tracer.
func (t *tracer) Statement(ctx context.Context, s holdfast.Statement) {
	t.observe(ctx, s)
	// What is done in the background for nobody's call has no trace.
	if parent := trace.SpanFromContext(ctx); t.statements && parent.IsRecording() {
		t.span(ctx, s)
	}
}
