package holdfastotel

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
)

// endCall ends the span of a call. An outcome that is an error of the service sets its status; an answer
// to a caller, such as a rejection or a key in progress, does not.
func endCall(span trace.Span, e holdfast.CallResult) {
	span.SetAttributes(outcomeKey.String(e.Outcome))
	if e.Rows > 0 {
		span.SetAttributes(rowsKey.Int64(e.Rows))
	}
	if e.Attempts > 0 {
		span.SetAttributes(attemptsKey.Int(e.Attempts))
	}
	if original, ok := fromTraceParent(e.Original); ok {
		span.AddLink(trace.Link{SpanContext: original})
	}
	if e.Err != nil {
		if fault(e.Outcome) {
			span.SetStatus(codes.Error, e.Outcome)
		}
		span.SetAttributes(errorType(e.Err))
	}
	span.End()
}

// traceParent is the form of a span in W3C Trace Context, by which an operation keeps who executed it.
func traceParent(at trace.SpanContext) string {
	return "00-" + at.TraceID().String() + "-" + at.SpanID().String() + "-" + at.TraceFlags().String()
}

// fromTraceParent reads what traceParent has written. A request's id of another form is none.
func fromTraceParent(text string) (at trace.SpanContext, ok bool) {
	parts := strings.Split(text, "-")
	if len(parts) != 4 || parts[0] != "00" {
		return at, false
	}
	id, err := trace.TraceIDFromHex(parts[1])
	if err != nil {
		return at, false
	}
	span, err := trace.SpanIDFromHex(parts[2])
	if err != nil {
		return at, false
	}
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span, TraceFlags: trace.FlagsSampled, Remote: true}), true
}

// fault reports whether an outcome is an error of the service, or of what it depends on.
func fault(outcome string) bool {
	switch outcome {
	case "unknown", "unfinished", "parked", "nested", "lost", "timeout", "rolled_back", "tx_lost", "refused", "schema", "unsupported", "aborted", "error":
		return true
	}
	return false
}

// span makes the span of a statement that has just ended.
func (t *tracer) span(ctx context.Context, s holdfast.Statement) {
	end := time.Now()
	a := []attribute.KeyValue{system(s.Engine), semconv.DBOperationName(s.Command)}
	name := s.Command
	if s.Name != "" {
		name = s.Name
		a = append(a, semconv.DBQuerySummary(s.Name))
	}
	if s.Err != nil {
		a = append(a, errorType(s.Err))
		if code := holdfast.ServerCode(s.Err); code != "" {
			a = append(a, semconv.DBResponseStatusCode(code))
		}
	}
	_, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithTimestamp(end.Add(-s.Duration)), trace.WithAttributes(a...))
	if s.Err != nil {
		span.SetStatus(codes.Error, "")
	}
	span.End(trace.WithTimestamp(end))
}
