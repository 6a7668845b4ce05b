package holdfastotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/holdfast-go/holdfast"
)

// Bounds of the histograms' buckets, in seconds: database statements take a tenth of a millisecond
// or more, and leases are held for up to days.
var (
	latency = []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}
	waiting = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}
	holding = []float64{0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 21600, 86400}
)

type instruments struct {
	calls, statementDuration, waits, holds metric.Float64Histogram
	waiting, held                          metric.Int64UpDownCounter
	lost, renewed, retries                 metric.Int64Counter
	reaperRows, reaperRefused              metric.Int64Counter
	parked, dead, again, unkeyed           metric.Int64Counter
	reaperOldest                           metric.Float64Gauge
}

func newInstruments(m metric.Meter) (*instruments, error) {
	i, errs := &instruments{}, []error(nil)
	histogram := func(to *metric.Float64Histogram, name, about string, bounds []float64) {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(about), metric.WithExplicitBucketBoundaries(bounds...))
		*to, errs = h, append(errs, err)
	}
	counter := func(to *metric.Int64Counter, name, unit, about string) {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(about))
		*to, errs = c, append(errs, err)
	}
	upDown := func(to *metric.Int64UpDownCounter, name, unit, about string) {
		c, err := m.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(about))
		*to, errs = c, append(errs, err)
	}
	histogram(&i.calls, "holdfast.call.duration", "Duration of calls of Holdfast, by outcome.", latency)
	histogram(&i.statementDuration, "holdfast.statement.duration", "Duration of Holdfast's own statements.", latency)
	histogram(&i.waits, "holdfast.lease.wait.duration", "Time waited for a lock, by outcome.", waiting)
	histogram(&i.holds, "holdfast.lease.hold.duration", "Time for which leases were held, by how they ended.", holding)
	upDown(&i.waiting, "holdfast.lease.waiting", "{call}", "Calls of this process that wait for a lock now.")
	upDown(&i.held, "holdfast.lease.held", "{lease}", "Leases that this process holds now.")
	counter(&i.lost, "holdfast.lease.lost", "{lease}", "Leases that were lost, by cause.")
	counter(&i.renewed, "holdfast.lease.renewed", "{lease}", "Leases that were renewed.")
	counter(&i.retries, "holdfast.transaction.retries", "{retry}", "Transactions that were run again.")
	counter(&i.reaperRows, "holdfast.reaper.rows", "{row}", "Rows that the reaper cleared, or passed over.")
	counter(&i.reaperRefused, "holdfast.reaper.refused", "{sweep}", "Sweeps refused because the database's clock jumped.")
	counter(&i.parked, "holdfast.staged.parked", "{operation}", "Staged operations parked as unknown, for a person.")
	counter(&i.again, "holdfast.similar.again", "{operation}", "Operations executed though a similar one had been: confirmed, or reported only.")
	counter(&i.unkeyed, "holdfast.http.unkeyed", "{request}", "HTTP requests served without an Idempotency-Key, only to be reported: it was missing or malformed.")
	counter(&i.dead, "holdfast.outbox.dead", "{message}", "Messages of an outbox that became dead letters, for a person.")
	g, err := m.Float64Gauge("holdfast.reaper.oldest", metric.WithUnit("s"),
		metric.WithDescription("How long ago the oldest row of the last sweep had expired."))
	i.reaperOldest = g
	return i, errors.Join(append(errs, err)...)
}

// observe records a statement.
func (i *instruments) observe(ctx context.Context, s holdfast.Statement) {
	a := []attribute.KeyValue{statementKey.String(s.Name), semconv.DBOperationName(s.Command), system(s.Engine)}
	if s.Err != nil {
		a = append(a, errorType(s.Err))
	}
	i.statementDuration.Record(ctx, s.Duration.Seconds(), metric.WithAttributeSet(attribute.NewSet(a...)))
}

// Event implements holdfast.Tracer.
func (i *instruments) Event(ctx context.Context, f holdfast.Event) {
	with := func(a ...attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(append(a, system(f.Engine))...))
	}
	lock := lockKey.String(f.Lock)
	switch f.Name {
	case "lease.granted":
		i.held.Add(ctx, 1, with(lock))
	case "lease.ended":
		i.held.Add(ctx, -1, with(lock))
		i.holds.Record(ctx, f.Duration.Seconds(), with(lock, outcomeKey.String(f.Outcome)))
	case "lease.lost":
		i.lost.Add(ctx, 1, with(lock, causeKey.String(f.Cause)))
	case "reaper.task":
		i.reaperRows.Add(ctx, f.Count, with(taskKey.String(f.Task), outcomeKey.String(f.Outcome)))
		i.reaperOldest.Record(ctx, f.Duration.Seconds(), with(taskKey.String(f.Task)))
	case "reaper.refused":
		i.reaperRefused.Add(ctx, 1, with())
	case "staged.parked":
		i.parked.Add(ctx, f.Count, with(operationKey.String(f.Operation)))
	case "outbox.dead":
		i.dead.Add(ctx, f.Count, with(operationKey.String(f.Operation)))
	case "similar.again":
		i.again.Add(ctx, f.Count, with(operationKey.String(f.Operation), outcomeKey.String(f.Outcome)))
	case "http.unkeyed":
		i.unkeyed.Add(ctx, f.Count, with(operationKey.String(f.Operation), outcomeKey.String(f.Outcome)))
	}
}
