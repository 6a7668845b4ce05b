package holdfastotel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/doctor"
)

// readingBound bounds the reading of the tables for one collection.
const readingBound = 5 * time.Second

// ObserveBacklog makes gauges of what waits in the tables for a person, or for a loop that does not run: see
// [doctor.Backlog]. A counter of a process ends with it; these have a value for as long as something waits. Each
// collection of the metrics reads the tables, on a connection of the pool, for at most five seconds. One process of
// a program is enough. Of opts only MeterProvider counts.
//
// Call stop before the pool is closed. Errors: those of the meter; [holdfast.ErrInvalid] if db is nil.
func ObserveBacklog[Tx any](db *holdfast.DB[Tx], opts ...Options) (stop func() error, err error) {
	o, err := one(opts)
	if err != nil {
		return nil, err
	}
	if db == nil {
		return nil, fmt.Errorf("%w: holdfastotel.ObserveBacklog: db is nil", holdfast.ErrInvalid)
	}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	m := o.MeterProvider.Meter(Scope)
	gauge := func(name, unit, about string) metric.Int64ObservableGauge {
		g, failed := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(about))
		err = errors.Join(err, failed)
		return g
	}
	unknown := gauge("holdfast.staged.unknown", "{operation}", "Staged operations whose outcome is unknown now. They wait for a person.")
	stuck := gauge("holdfast.staged.stuck", "{operation}", "Staged operations that have waited for a worker for more than a minute.")
	dead := gauge("holdfast.outbox.dead_messages", "{message}", "Messages that could not be published and wait for a person now.")
	behind := gauge("holdfast.reaper.behind", "s", "How long the oldest row that a reaper would clear has been due.")
	if err != nil {
		return nil, fmt.Errorf("holdfastotel: %w", err)
	}
	engine := system(string(db.Engine()))
	named := func(to metric.Observer, g metric.Int64ObservableGauge, all []doctor.Waiting) {
		if len(all) == 0 {
			to.ObserveInt64(g, 0, metric.WithAttributes(engine))
		}
		for _, w := range all {
			to.ObserveInt64(g, w.Count, metric.WithAttributes(engine, operationKey.String(w.Name)))
		}
	}
	r, err := m.RegisterCallback(func(ctx context.Context, to metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, readingBound)
		defer cancel()
		b, err := doctor.ReadBacklog(ctx, db)
		if err != nil {
			return fmt.Errorf("holdfastotel: reading what waits: %w", err)
		}
		named(to, unknown, b.Unknown)
		named(to, stuck, b.Stuck)
		named(to, dead, b.Dead)
		if b.Counted {
			to.ObserveInt64(behind, int64(b.DueFor/time.Second), metric.WithAttributes(engine))
		}
		return nil
	}, unknown, stuck, dead, behind)
	if err != nil {
		return nil, fmt.Errorf("holdfastotel: %w", err)
	}
	return r.Unregister, nil
}
