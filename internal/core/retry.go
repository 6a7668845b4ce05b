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
	return retry(ctx, attempts, retryable, f, (*Backoff).Sleep)
}

// RetryTx is Retry for transactions that run a function of the program's. It pauses as SleepAfter does.
func RetryTx(ctx context.Context, attempts int, retryable func(error) bool, f func(attempt int) error) (exhausted bool, err error) {
	begun := time.Now()
	return retry(ctx, attempts, retryable, f, func(b *Backoff, ctx context.Context) error {
		err := b.SleepAfter(ctx, time.Since(begun))
		begun = time.Now()
		return err
	})
}

func retry(ctx context.Context, attempts int, retryable func(error) bool, f func(attempt int) error, sleep func(*Backoff, context.Context) error) (exhausted bool, err error) {
	pause := NewBackoff()
	for n := 1; ; n++ {
		err := f(n)
		switch {
		case err == nil || ctx.Err() != nil || !retryable(err):
			return false, err
		case n == attempts:
			return true, err
		}
		if err := sleep(pause, ctx); err != nil {
			return false, err
		}
	}
}
