package core

import (
	"context"
	"time"
)

// Retry runs f until it succeeds, fails with an error that retryable rejects, or has run
// attempts times. Only in the last case exhausted is true. f receives the number of the
// attempt, from 1. Retry pauses between attempts as Backoff does. If ctx ends during a pause,
// Retry returns its cause.
func Retry(ctx context.Context, attempts int, retryable func(error) bool, f func(attempt int) error) (exhausted bool, err error) {
	return retry(ctx, attempts, retryable, f, false)
}

// RetryTx is Retry for transactions that run a function of the program's. It pauses as SleepAfter does.
func RetryTx(ctx context.Context, attempts int, retryable func(error) bool, f func(attempt int) error) (exhausted bool, err error) {
	return retry(ctx, attempts, retryable, f, true)
}

func retry(ctx context.Context, attempts int, retryable func(error) bool, f func(attempt int) error, after bool) (exhausted bool, err error) {
	var pause *Backoff // most calls need none
	for n := 1; ; n++ {
		begun := time.Now()
		err := f(n)
		switch {
		case err == nil || ctx.Err() != nil || !retryable(err):
			return false, err
		case n == attempts:
			return true, err
		case pause == nil:
			pause = NewBackoff()
		}
		if after {
			err = pause.SleepAfter(ctx, time.Since(begun))
		} else {
			err = pause.Sleep(ctx)
		}
		if err != nil {
			return false, err
		}
	}
}
