package idempotency

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Bounds and default of a pass of the completer.
const (
	DefaultBatch = 100
	MaxBatch     = 10_000
)

// Completed is what one pass of the completer did.
type Completed struct {
	// Found were due: their worker died, or their pause was over.
	Found int
	// Succeeded and Rejected were brought to their end, Parked are unknown now,
	// Failed are to be tried again, and Busy were somebody else's by then.
	Succeeded, Rejected, Parked, Failed, Busy int
	// Errs are those of the operations that failed. They are the functions' own
	// and may say what should not be logged.
	Errs []error
}

// Complete is one pass over the operations that nobody works on and whose time
// has come: it drives them on, one after another, or parks them, as their steps
// declare. At most limit of them; 0 is 100. Several at once, in any processes,
// are safe. A ctx that ends stops it between steps.
func (s *Staged[Tx, Req, Res]) Complete(ctx context.Context, limit int) (done Completed, err error) {
	ctx, span := tell(ctx, s.rows.store.access.Trace, "staged.complete", s.stages.Name)
	defer func() { span.Rows = int64(done.Found); span.End(err, nil) }()
	if limit == 0 {
		limit = DefaultBatch
	}
	if limit < 0 || limit > MaxBatch {
		return done, invalid("limit", "is not between 0 (default) and 10000")
	}
	keys, err := s.due(ctx, limit)
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

func (s *Staged[Tx, Req, Res]) due(ctx context.Context, limit int) (keys []hash, err error) {
	rows, err := s.rows.sql.due.Query(ctx, s.rows.store.access.Pool, s.rows.store.options.Namespace, s.stages.Name, limit)
	if err != nil {
		return nil, s.rows.explain(err)
	}
	defer rows.Close()
	for rows.Next() {
		var b []byte
		if err := rows.Scan(&b); err != nil {
			return nil, err
		}
		keys = append(keys, hash(b))
	}
	return keys, firstOf(rows.Err(), rows.Close())
}

func (s *Staged[Tx, Req, Res]) complete(ctx context.Context, key hash, done *Completed) {
	c := &claim{hash: key}
	row, err := s.rows.look(ctx, s.rows.store.access.Pool, key)
	if err == nil && row != nil && row.state == pending && row.left <= 0 {
		row, err = s.take(ctx, c, row)
	}
	var rej *Rejection
	var parkedErr *ParkedError
	switch {
	case err != nil:
	case row == nil || !row.mine:
		if row != nil && row.state == parked {
			done.Parked++
		} else {
			done.Busy++
		}
		return
	default:
		var inner context.Context
		if inner, err = enter(ctx, s.rows.store, key); err == nil {
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

// RunCompleter repeats Complete until ctx ends, and returns its cause. Passes are
// every apart, with jitter of a half; one that found a full batch is followed at
// once. report, if not nil, has each pass and its error; after an error, such as
// a database that is away, it goes on.
func (s *Staged[Tx, Req, Res]) RunCompleter(ctx context.Context, every time.Duration, report func(Completed, error)) error {
	if every <= 0 {
		return invalid("every", "is not positive")
	}
	failing := core.NewBackoff()
	for {
		done, err := s.Complete(ctx, 0)
		if report != nil && ctx.Err() == nil {
			report(done, err)
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil && done.Found == DefaultBatch && done.Busy < done.Found:
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
