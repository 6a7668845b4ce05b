// Package holdfastotel reports Holdfast's work as OpenTelemetry metrics and spans. It is a
// separate module, so that a program without it has no dependency on OpenTelemetry in its go.mod.
//
//	tracer, err := holdfastotel.New() // the global providers
//	if err != nil {
//		return err
//	}
//	db, err := holdfastsql.Open(ctx, pool, holdfast.Options{Tracers: []holdfast.Tracer{tracer}})
//
// Each call is a span. Its statements, and the calls and the program's own work within it, are the
// span's children. docs/reference/observability.md lists all metrics, spans and attributes. None contains a
// key, an owner (the tenant, merchant or account whose operation it is), a holder, a token, a
// result or the text of an error.
//
// Spans of statements follow the semantic conventions for database client spans, version 1.43.0
// (db.system.name, db.operation.name, db.query.summary, db.response.status_code, error.type).
// Their duration is Holdfast's own metric, because a program that also instruments its driver
// would count each statement twice in db.client.operation.duration.
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

// Options configures [New]; the zero value is the default.
type Options struct {
	// MeterProvider makes the metrics. Default: OpenTelemetry's global one.
	MeterProvider metric.MeterProvider
	// TracerProvider makes the spans. Default: OpenTelemetry's global one.
	TracerProvider trace.TracerProvider
	// NoStatementSpans disables the spans of statements, for a program whose driver is
	// instrumented. The metric of statements stays.
	NoStatementSpans bool
}

// New returns a tracer for [holdfast.Options].Tracers. One tracer serves all DBs of a process.
//
// Errors: [holdfast.ErrInvalid]; an error of the meter that refused an instrument.
func New(opts ...Options) (holdfast.Tracer, error) {
	o, err := one(opts)
	if err != nil {
		return nil, err
	}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	m, err := newInstruments(o.MeterProvider.Meter(Scope))
	if err != nil {
		return nil, fmt.Errorf("holdfastotel: %w", err)
	}
	return &tracer{tracer: o.TracerProvider.Tracer(Scope), instruments: m, statements: !o.NoStatementSpans}, nil
}

// one returns the only element of opts, or the defaults if there is none.
func one(opts []Options) (o Options, err error) {
	switch len(opts) {
	case 0:
		return o, nil
	case 1:
		return opts[0], nil
	}
	return o, &holdfast.InputError{Field: "holdfastotel.Options", Problem: fmt.Sprintf("%d values were given: give one, or none for the defaults", len(opts))}
}

type tracer struct {
	*instruments

	tracer     trace.Tracer
	statements bool
}

// Start implements holdfast.Tracer.
func (t *tracer) Start(ctx context.Context, c holdfast.Call) (context.Context, func(holdfast.CallResult)) {
	about := callAttributes(c)
	outer := ctx
	ctx, span := t.tracer.Start(ctx, "holdfast "+c.Name, trace.WithSpanKind(trace.SpanKindInternal), trace.WithAttributes(about...))
	if at := span.SpanContext(); at.IsValid() && holdfast.RequestID(ctx) == "" {
		ctx = holdfast.WithRequestID(ctx, traceParent(at))
	}
	lock := metric.WithAttributeSet(attribute.NewSet(lockKey.String(c.Lock), system(c.Engine)))
	if c.Waits {
		t.waiting.Add(outer, 1, lock)
	}
	return ctx, func(e holdfast.CallResult) {
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
	// Background work that belongs to no call has no trace.
	if parent := trace.SpanFromContext(ctx); t.statements && parent.IsRecording() {
		t.span(ctx, s)
	}
}
