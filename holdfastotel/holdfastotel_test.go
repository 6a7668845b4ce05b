package holdfastotel_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfastotel"
	all "github.com/holdfast-go/holdfast/internal/test/tracetest"
)

// seen holds what a program that makes every call has exported.
type seen struct {
	spans   tracetest.SpanStubs
	metrics map[string]metricdata.Metrics
}

func everything(t *testing.T, o holdfastotel.Options) seen {
	t.Helper()
	spans, reader := tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	mp := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	o.TracerProvider, o.MeterProvider = tp, mp
	tracer, err := holdfastotel.New(o)
	if err != nil {
		t.Fatal(err)
	}
	all.Everything(t, holdfast.Options{Tracers: []holdfast.Tracer{tracer}})
	// In production this needs a database clock that jumps.
	tracer.Event(t.Context(), holdfast.Event{Name: "reaper.refused", Engine: "sqlite", Duration: time.Hour})
	var got metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	s := seen{spans: spans.GetSpans(), metrics: map[string]metricdata.Metrics{}}
	for _, scope := range got.ScopeMetrics {
		for _, m := range scope.Metrics {
			s.metrics[m.Name] = m
		}
	}
	return s
}

// points returns the attributes of each point of a metric.
func points(m metricdata.Metrics) (sets []attribute.Set) {
	switch d := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range d.DataPoints {
			sets = append(sets, p.Attributes)
		}
	case metricdata.Gauge[float64]:
		for _, p := range d.DataPoints {
			sets = append(sets, p.Attributes)
		}
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			sets = append(sets, p.Attributes)
		}
	}
	return sets
}

// sum adds up a counter's points that have the attribute.
func (s seen) sum(metric, key, value string) (n int64) {
	switch d := s.metrics[metric].Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range d.DataPoints {
			if v, ok := p.Attributes.Value(attribute.Key(key)); ok && v.AsString() == value {
				n += p.Value
			}
		}
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			if v, ok := p.Attributes.Value(attribute.Key(key)); ok && v.AsString() == value {
				n += int64(p.Count)
			}
		}
	}
	return n
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	s := everything(t, holdfastotel.Options{})
	for _, c := range []struct {
		metric, key, value string
		atLeast, atMost    int64
	}{
		{"holdfast.call.duration", "holdfast.outcome", "unknown", 1, 1},
		{"holdfast.call.duration", "holdfast.outcome", "parked", 2, 2},
		{"holdfast.call.duration", "holdfast.outcome", "retrying", 2, 2},
		{"holdfast.call.duration", "holdfast.outcome", "replayed", 5, 20},
		{"holdfast.call.duration", "holdfast.outcome", "executed", 5, 50},
		{"holdfast.call.duration", "holdfast.operation", "refund", 10, 50},
		{"holdfast.call.duration", "holdfast.call", "lease.renew", 1, 50},
		{"holdfast.lease.wait.duration", "holdfast.outcome", "timeout", 1, 1},
		{"holdfast.lease.wait.duration", "holdfast.lock", "fair", 2, 2},
		{"holdfast.lease.hold.duration", "holdfast.outcome", "lost", 3, 3},
		{"holdfast.lease.held", "holdfast.lock", "lease", 0, 0},
		{"holdfast.lease.held", "holdfast.lock", "semaphore", 0, 0},
		{"holdfast.lease.waiting", "holdfast.lock", "lease", 0, 0},
		{"holdfast.lease.lost", "holdfast.cause", "expired", 1, 1},
		{"holdfast.lease.lost", "holdfast.cause", "taken", 2, 2},
		{"holdfast.lease.lost", "holdfast.cause", "release", 2, 2},
		{"holdfast.lease.renewed", "holdfast.lock", "lease", 1, 50},
		{"holdfast.transaction.retries", "holdfast.call", "version.retry", 1, 1},
		{"holdfast.reaper.rows", "holdfast.task", "keys", 5, 50},
		{"holdfast.reaper.refused", "db.system.name", "sqlite", 1, 1},
		{"holdfast.staged.parked", "holdfast.operation", "payout", 1, 1},
		{"holdfast.similar.again", "holdfast.outcome", "confirmed", 1, 1},
		{"holdfast.http.unkeyed", "holdfast.outcome", "missing", 1, 1},
		{"holdfast.outbox.dead", "holdfast.operation", "events", 1, 1},
		{"holdfast.statement.duration", "holdfast.statement", "records.claim", 5, 50},
		{"holdfast.statement.duration", "db.operation.name", "COMMIT", 5, 500},
	} {
		if n := s.sum(c.metric, c.key, c.value); n < c.atLeast || n > c.atMost || s.metrics[c.metric].Name == "" {
			t.Errorf("%s{%s=%q} is %d, not %d to %d", c.metric, c.key, c.value, n, c.atLeast, c.atMost)
		}
	}
	for _, m := range s.metrics {
		if m.Description == "" || m.Unit == "" {
			t.Errorf("%s has no description or unit", m.Name)
		}
		if h, ok := m.Data.(metricdata.Histogram[float64]); ok && h.DataPoints[0].Bounds[0] > 0.001 {
			t.Errorf("%s has the bounds of milliseconds: %v", m.Name, h.DataPoints[0].Bounds)
		}
	}
}

// TestSpans checks that spans of statements and calls are children of the call that made them,
// that errors set the status, and that no error text is exported.
func TestSpans(t *testing.T) {
	t.Parallel()
	s := everything(t, holdfastotel.Options{})
	by := map[trace.SpanID]tracetest.SpanStub{}
	for _, span := range s.spans {
		by[span.SpanContext.SpanID()] = span
	}
	children := map[string]bool{}
	for _, span := range s.spans {
		parent, there := by[span.Parent.SpanID()]
		if span.SpanKind == trace.SpanKindClient && !there {
			t.Errorf("statement %s has no call", span.Name)
		}
		if there {
			children[parent.Name+" > "+span.Name] = true
		}
		bad := slices.ContainsFunc(span.Attributes, func(a attribute.KeyValue) bool { return a.Key == "error.type" })
		// A call's answer to its caller, or work in the background, is no error of the service.
		answers := []string{"held", "invalid", "not_found", "rejected", "replayed", "mismatch", "similar", "too_late", "too_many", "expired", "in_progress", "retrying", "settling", "duplicate", "conflict"}
		answer := slices.ContainsFunc(span.Attributes, func(a attribute.KeyValue) bool {
			return a.Key == "holdfast.outcome" && slices.Contains(answers, a.Value.AsString())
		})
		if (bad && !answer) != (span.Status.Code == codes.Error) || len(span.Events) != 0 {
			t.Errorf("%s: status %v, attributes %v, events %v", span.Name, span.Status, span.Attributes, span.Events)
		}
		if span.EndTime.Before(span.StartTime) {
			t.Errorf("%s ends before it starts", span.Name)
		}
	}
	for _, want := range []string{
		"holdfast idempotency.do > records.claim", "holdfast idempotency.do > commit", "holdfast lease.do > holdfast lease.acquire",
		"holdfast lease.do > holdfast lease.release", "holdfast lease.acquire > locks.take", "holdfast staged.do > holdfast staged.attempt",
		"holdfast version.retry > holdfast transaction", "holdfast lease.renew > locks.renew", "holdfast transaction > begin",
		"holdfast transaction > holdfast version.update_tx",
	} {
		if !children[want] {
			t.Errorf("there is no %s", want)
		}
	}
	parked := func(span tracetest.SpanStub) bool {
		return span.Status.Description == "parked" && slices.Contains(span.Attributes, attribute.String("holdfast.outcome", "parked"))
	}
	if !slices.ContainsFunc(s.spans, parked) {
		t.Error("nothing is parked")
	}
	for _, name := range []string{"holdfast staged.do", "holdfast idempotency.do"} {
		linked := func(span tracetest.SpanStub) bool {
			return span.Name == name && slices.Contains(span.Attributes, attribute.String("holdfast.outcome", "replayed")) &&
				len(span.Links) == 1 && by[span.Links[0].SpanContext.SpanID()].Name == name
		}
		if !slices.ContainsFunc(s.spans, linked) {
			t.Errorf("no replay of %s is linked to the span that executed it", name)
		}
	}
	if s := everything(t, holdfastotel.Options{NoStatementSpans: true}); slices.ContainsFunc(s.spans, func(s tracetest.SpanStub) bool { return s.SpanKind == trace.SpanKindClient }) {
		t.Error("statements have spans in spite of WithoutStatementSpans")
	}
}

// TestNoSecretIsTold checks that no secret is exported: keys, owners, requests and results
// look like one, and the errors quote them.
func TestNoSecretIsTold(t *testing.T) {
	t.Parallel()
	s := everything(t, holdfastotel.Options{})
	if text := fmt.Sprintf("%+v", s.metrics); strings.Contains(text, all.Secret) || len(text) < 1000 {
		t.Error("in the metrics")
	}
	for _, span := range s.spans {
		if strings.Contains(fmt.Sprintf("%+v", span), all.Secret) {
			t.Errorf("in a span: %+v", span)
		}
	}
}

// TestDocsTables checks that docs/reference/observability.md lists exactly the metrics with their
// attributes, the span attributes and the calls that exist.
func TestDocsTables(t *testing.T) {
	t.Parallel()
	s := everything(t, holdfastotel.Options{})
	text, err := os.ReadFile("../docs/reference/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	docs := map[string]map[string][]string{} // by the first heading of the table, then by the first cell
	code := regexp.MustCompile("`([^`]+)`")
	heading := ""
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		switch name := code.FindStringSubmatch(cells[0]); {
		case !strings.HasPrefix(line, "|"):
			heading = ""
		case heading == "":
			heading = strings.TrimSpace(cells[0])
			docs[heading] = map[string][]string{}
		case name != nil:
			docs[heading][name[1]] = nil
			for _, m := range code.FindAllStringSubmatch(cells[len(cells)-1], -1) {
				docs[heading][name[1]] = append(docs[heading][name[1]], m[1])
			}
		}
	}
	same := func(what string, got, want []string) {
		t.Helper()
		slices.Sort(got)
		slices.Sort(want)
		if got, want := slices.Compact(got), slices.Compact(want); !slices.Equal(got, want) || len(got) == 0 {
			t.Errorf("%s\nthere are:   %v\nin the docs: %v", what, got, want)
		}
	}
	same("metrics", slices.Collect(maps.Keys(s.metrics)), slices.Collect(maps.Keys(docs["metric"])))
	for name, m := range s.metrics {
		var keys []string
		for _, set := range points(m) {
			for _, a := range set.ToSlice() {
				keys = append(keys, string(a.Key))
			}
		}
		same(name, keys, docs["metric"][name])
	}
	var calls, attributes []string
	for _, span := range s.spans {
		if name, ok := strings.CutPrefix(span.Name, "holdfast "); ok {
			calls = append(calls, name)
		}
		for _, a := range span.Attributes {
			attributes = append(attributes, string(a.Key))
		}
	}
	same("calls", calls, slices.Collect(maps.Keys(docs["call"])))
	same("attributes of spans", attributes, slices.Collect(maps.Keys(docs["span attribute"])))
	names, err := os.ReadFile("../internal/trace/names.go")
	if err != nil {
		t.Fatal(err)
	}
	block, _, _ := strings.Cut(string(names), "\n)")
	var outcomes []string
	for _, m := range regexp.MustCompile(`= "(\w+)"`).FindAllStringSubmatch(block, -1) {
		outcomes = append(outcomes, m[1])
	}
	same("outcomes", outcomes, slices.Collect(maps.Keys(docs["outcome"])))
}

// TestNewWithout checks that the global providers do nothing until they are set.
func TestNewWithout(t *testing.T) {
	t.Parallel()
	tracer, err := holdfastotel.New()
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := tracer.Start(context.Background(), holdfast.Call{Name: "lease.acquire", Waits: true})
	tracer.Statement(ctx, holdfast.Statement{})
	end(holdfast.CallResult{})
}
