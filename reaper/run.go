package reaper

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/internal/options"
)

// Bounds of the interval of Run.
const (
	minInterval = 10 * time.Millisecond
	maxInterval = 7 * 24 * time.Hour
)

const maxErrorPause = time.Minute

// Run sweeps again and again until ctx ends, and returns ctx's cause. The pause between two
// passes is the interval plus or minus a quarter. The first pause is at most a quarter, so that
// processes that start together do not sweep together. The error of a pass goes to
// Options.OnError, and Run continues after twice the pause, up to a minute.
//
// Errors: [holdfast.ErrInvalid], at once, for an interval that is not between 10 ms and
// 7 days.
func (r *Reaper) Run(ctx context.Context, interval time.Duration) error {
	if err := (options.Span{Least: minInterval, Most: maxInterval}).Check("interval", interval); err != nil {
		return err
	}
	wait, pause := rand.N(interval/4), interval
	for {
		if err := sleep(ctx, wait); err != nil {
			return err
		}
		report, err := r.Sweep(ctx)
		if r.options.OnReport != nil {
			r.options.OnReport(report)
		}
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if err != nil {
			r.options.OnError(err)
			pause = min(2*pause, max(interval, maxErrorPause))
		} else {
			pause = interval
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
