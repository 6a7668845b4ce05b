package staged

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/options"
)

// Bounds and default of one pass of the completer.
const (
	defaultBatch = 100
	maxBatch     = 10_000
)

// CompleterOptions configures the completer. The zero value of each field is its default.
type CompleterOptions struct {
	// Limit is the maximum number of operations of one pass. Default: 100; at most 10000.
	Limit int
	// OnPass receives the result and the error of each pass of RunCompleter, which calls it on its
	// own goroutine, between passes. Default: both are dropped. Complete returns them instead.
	OnPass func(Completed, error)
}

func completerOptions(opts []CompleterOptions) (CompleterOptions, error) {
	o, err := options.One(opts)
	if err != nil {
		return o, err
	}
	if o.Limit == 0 {
		o.Limit = defaultBatch
	}
	if o.Limit < 0 || o.Limit > maxBatch {
		return o, once.Invalid("CompleterOptions.Limit", fmt.Sprintf("%d is not between 0 (default) and %d", o.Limit, maxBatch))
	}
	return o, nil
}

// Completed is the result of one pass of the completer.
type Completed struct {
	// Found is the number of due operations: their worker died, or their pause was over.
	Found int
	// Succeeded and Rejected operations were finished, Parked ones have an unknown outcome, Failed
	// ones will be tried again, and Busy ones were taken by another worker.
	Succeeded, Rejected, Parked, Failed, Busy int
	// Errs are the errors of the operations that failed. They come from the functions and may
	// contain text that should not be logged.
	Errs []error
}

// Complete makes one pass over the operations whose lease or pause has ended. It continues them,
// one after another, or parks them, as their steps declare. It takes at most
// CompleterOptions.Limit of them. Concurrent calls, in any processes, are safe. If ctx ends,
// Complete stops between steps.
//
// Errors: [ErrInTx], [holdfast.ErrInvalid], [holdfast.ErrSchema], errors of ctx and of the driver.
func (s *Runner[Tx, Req, Res]) Complete(ctx context.Context, opts ...CompleterOptions) (done Completed, err error) {
	ctx, span := once.StartSpan(ctx, s.rows.Access.Trace, "staged.complete", s.workflow.Name)
	defer func() { span.Rows = int64(done.Found); span.End(err, nil) }()
	o, err := completerOptions(opts)
	if err != nil {
		return done, err
	}
	if err := s.outside(ctx); err != nil {
		return done, err
	}
	keys, err := s.due(ctx, o.Limit)
	if err != nil {
		return done, err
	}
	done.Found = len(keys)
	for _, key := range keys {
		if ctx.Err() != nil {
			return done, context.Cause(ctx)
		}
		s.complete(ctx, key, &done)
	}
	return done, nil
}

func (s *Runner[Tx, Req, Res]) due(ctx context.Context, limit int) ([]once.ID, error) {
	rows, err := s.rows.SQL.Due.Query(ctx, s.rows.Access.Pool, s.rows.options.Namespace, s.workflow.Name, limit)
	if err != nil {
		return nil, s.rows.Explain(err)
	}
	return core.Collect(rows, func(row core.Row) (id once.ID, err error) {
		err = row.Scan(&id.Owner, once.Into(&id.Hash))
		return id, err
	})
}

func (s *Runner[Tx, Req, Res]) complete(ctx context.Context, id once.ID, done *Completed) {
	c := &call{id: id}
	row, err := s.rows.Read(ctx, s.rows.Access.Pool, id)
	if err == nil && row != nil && row.State == ledger.Pending && row.Left <= 0 {
		row, err = s.take(ctx, c, row)
	}
	var rej *idempotency.Rejection
	var parkedErr *ParkedError
	switch {
	case err != nil:
	case row == nil || !row.Mine:
		if row != nil && row.State == ledger.Parked {
			done.Parked++
		} else {
			done.Busy++
		}
		return
	default:
		var inner context.Context
		if inner, err = s.rows.store.Internal().Enter(ctx, id.Hash); err == nil {
			_, err = s.drive(ctx, inner, c, row)
		}
	}
	switch {
	case err == nil:
		done.Succeeded++
	case errors.As(err, &rej):
		done.Rejected++
	case errors.As(err, &parkedErr):
		done.Parked++
	case errors.Is(err, ErrStale):
		done.Busy++
	default:
		done.Failed++
		done.Errs = append(done.Errs, err)
	}
}

// RunCompleter repeats Complete until ctx ends, and returns the cause. The interval between passes
// is every, with jitter of a half; a full batch is followed by the next pass at once. After an
// error, such as a database that is down, it continues. CompleterOptions.OnPass receives each
// result and error.
//
// Errors: [ErrInTx] and [holdfast.ErrInvalid], at once; the cause of ctx.
func (s *Runner[Tx, Req, Res]) RunCompleter(ctx context.Context, every time.Duration, opts ...CompleterOptions) error {
	o, err := completerOptions(opts)
	if err != nil {
		return err
	}
	if every <= 0 {
		return once.Invalid("every", "is not positive")
	}
	if err := s.outside(ctx); err != nil {
		return err
	}
	failing := core.NewBackoff()
	for {
		done, err := s.Complete(ctx, o)
		if o.OnPass != nil && ctx.Err() == nil {
			o.OnPass(done, err)
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil && done.Found == o.Limit && done.Busy < done.Found:
			failing = core.NewBackoff()
			continue
		case err != nil:
			if err := failing.Sleep(ctx); err != nil {
				return err
			}
		}
		t := time.NewTimer(time.Duration(float64(every) * (0.5 + rand.Float64()/2)))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		}
	}
}
