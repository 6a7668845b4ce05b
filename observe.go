package holdfast

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Statement is one statement of Holdfast's own, as an Observer sees it.
// It never carries values: keys and results stay out of logs.
type Statement struct {
	// Name is Holdfast's name of the statement, "begin", "commit",
	// "rollback", or empty.
	Name string
	// Duration is what the caller waited, by the monotonic clock.
	Duration time.Duration
	// Err is the driver's error, if any.
	Err error
}

// Observer is called after each statement, on the goroutine that ran it. It
// must be quick and safe for concurrent use.
type Observer func(ctx context.Context, s Statement)

type observed struct {
	q core.Querier
	f Observer
}

func (d *DB[Tx]) observed(q core.Querier) core.Querier {
	if d.options.observer == nil {
		return q
	}
	return observed{q, d.options.observer}
}

func (o observed) Exec(ctx context.Context, query string, args ...any) (core.Result, error) {
	start := time.Now()
	r, err := o.q.Exec(ctx, query, args...)
	o.f(ctx, Statement{core.StatementName(ctx), time.Since(start), err})
	return r, err
}

func (o observed) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	start := time.Now()
	r, err := o.q.Query(ctx, query, args...)
	o.f(ctx, Statement{core.StatementName(ctx), time.Since(start), err})
	return r, err
}

// observe times a step which is not a statement of a Querier.
func (d *DB[Tx]) observe(ctx context.Context, name string, f func() error) error {
	if d.options.observer == nil {
		return f()
	}
	start := time.Now()
	err := f()
	d.options.observer(ctx, Statement{name, time.Since(start), err})
	return err
}
