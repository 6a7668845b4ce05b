package core

import "context"

// Retry runs f until it succeeds, fails with an error that retryable rejects, or has run
// attempts times. Only in the last case exhausted is true. f receives the number of the
// attempt, from 1. Retry pauses between attempts as Backoff does. If ctx ends during a pause,
// Retry returns its cause.
func Retry(ctx context.Context, attempts int, retryable func(error) bool, f func(attempt int) error) (exhausted bool, err error) {
	pause := NewBackoff()
	for n := 1; ; n++ {
		err := f(n)
		switch {
		case err == nil || ctx.Err() != nil || !retryable(err):
			return false, err
		case n == attempts:
			return true, err
		}
		if err := pause.Sleep(ctx); err != nil {
			return false, err
		}
	}
}
