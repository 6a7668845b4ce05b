package reaper

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/internal/options"
)

const (
	defaultEvery  = time.Minute
	maxErrorPause = time.Minute
)

// RunOptions configure Run. The zero value of each field is its default.
type RunOptions struct {
	// Every is the pause between two passes, plus or minus a quarter: 10 ms to 7 days. Default: a minute.
	Every time.Duration
	// OnPass receives the report and the error of each pass, on the goroutine of Run. Default: an error is
	// logged with Logger.
	OnPass func(Report, error)
	// Logger logs the errors. Default: slog.Default().
	Logger *slog.Logger
}

func (o *RunOptions) withDefaults() error {
	if o.Every == 0 {
		o.Every = defaultEvery
	}
	logger := cmp.Or(o.Logger, slog.Default())
	if o.OnPass == nil {
		o.OnPass = func(_ Report, err error) {
			if err != nil {
				logger.Error("reaper: a pass failed", "error", err)
			}
		}
	}
	return options.Interval.Check("RunOptions.Every", o.Every)
}

// Run sweeps again and again until ctx ends, and returns ctx's cause. The first pause is at most a quarter
// of RunOptions.Every, so that processes that start together do not sweep together. After a pass that
// failed, Run continues after twice the pause, up to a minute.
//
// Errors: [holdfast.ErrInvalid], at once.
func (r *Reaper) Run(ctx context.Context, opts ...RunOptions) error {
	o, err := options.One(opts)
	if err != nil {
		return err
	}
	if err := o.withDefaults(); err != nil {
		return err
	}
	wait, pause := rand.N(o.Every/4), o.Every
	for {
		if err := sleep(ctx, wait); err != nil {
			return err
		}
		report, err := r.Sweep(ctx)
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		o.OnPass(report, err)
		if err != nil {
			pause = min(2*pause, max(o.Every, maxErrorPause))
		} else {
			pause = o.Every
		}
		wait = pause - pause/4 + rand.N(pause/2)
	}
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return context.Cause(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
