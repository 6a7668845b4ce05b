package reaper_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/reaper"
)

func TestRun(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), runGoesOn)
}

// runGoesOn checks that passes follow each other, that an error is reported and does not stop
// Run, and that the end of the context does.
func runGoesOn[Tx any](e *conformance.Env[Tx]) {
	ctx, cancel := context.WithCancelCause(e.Ctx)
	defer cancel(nil)
	enough := errors.New("enough")
	e.Records("due", 5, e.Now()-1_000_000)
	var cleared int64
	var errs []error
	passes := 0
	run := reaper.RunOptions{
		Every: 20 * time.Millisecond,
		OnPass: func(report reaper.Report, err error) {
			if passes++; err != nil {
				errs = append(errs, err)
			}
			cleared += report.Rows()
			switch passes {
			case 2:
				e.Must(`ALTER TABLE holdfast_records RENAME TO away`)
			case 3:
				e.Must(`ALTER TABLE away RENAME TO holdfast_records`)
				e.Records("more", 5, e.Now()-1_000_000)
			case 5:
				cancel(enough)
			}
		},
	}
	if err := e.Reaper(reaper.Options{}).Run(ctx, run); !errors.Is(err, enough) {
		e.Errorf("got %v, want the context's cause", err)
	}
	if passes != 5 || cleared != 10 || len(errs) != 1 || !errors.Is(errs[0], holdfast.ErrSchema) {
		e.Errorf("%d passes cleared %d rows, errors %v", passes, cleared, errs)
	}
}

func TestOnePassAtATime(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), onePassAtATime)
}

// onePassAtATime checks that sweeps of one Reaper run one at a time, and that a waiting sweep
// ends with its context.
func onePassAtATime[Tx any](e *conformance.Env[Tx]) {
	e.Records("due", 40, e.Now()-1_000_000)
	var inside, peak atomic.Int32
	held, free := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r := e.Reaper(reaper.Options{Batch: 10, Pace: 0.01})
	r.SetClock(func(ctx context.Context, read func(context.Context) (int64, error)) (int64, error) {
		peak.Store(max(peak.Load(), inside.Add(1)))
		defer inside.Add(-1)
		once.Do(func() { close(held); <-free })
		return read(ctx)
	})
	var rows atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			report, err := r.Sweep(e.Ctx)
			if err != nil {
				e.Error(err)
			}
			rows.Add(report.Rows())
		})
	}
	<-held
	ctx, cancel := context.WithTimeout(e.Ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := r.Sweep(ctx); !errors.Is(err, context.DeadlineExceeded) {
		e.Errorf("waiting for a turn: %v", err)
	}
	close(free)
	wg.Wait()
	if peak.Load() != 1 || rows.Load() != 40 {
		e.Errorf("%d passes at once, %d rows", peak.Load(), rows.Load())
	}
}
