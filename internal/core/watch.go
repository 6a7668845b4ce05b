package core

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// WatchEvery is the pause between two reads of a watch whose caller sets none.
	WatchEvery = 500 * time.Millisecond

	maxWatchPause = 10 * time.Second
	// watchFails is how long an error that does not pass must last before it ends a watch.
	watchFails = 5 * time.Second
)

// Watch calls read until it returns false: when wake receives, and every interval, plus or minus a
// tenth, so that many watches do not read in step. After an error the pause doubles, up to ten
// seconds. An error that passes, such as a lost connection, does not end the watch; another one does
// if it lasts. Then Watch returns it, and when ctx ends, its cause.
func Watch(ctx context.Context, every time.Duration, passes func(error) bool, wake <-chan struct{}, read func() (goes bool, err error)) error {
	pause, passed := every, time.Time{}
	for {
		goes, err := read()
		switch {
		case !goes:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			pause, passed = every, time.Time{}
		case passed.IsZero() || passes(err):
			passed = time.Now()
		case time.Since(passed) >= watchFails:
			return err
		}
		if err != nil {
			pause = max(min(2*pause, maxWatchPause), every)
		}
		t := time.NewTimer(time.Duration((0.9 + 0.2*rand.Float64()) * float64(pause)))
		select {
		case <-t.C:
		case <-wake:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}
