package core

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// CleanupTimeout bounds a rollback, a release and the return of a connection.
const CleanupTimeout = 5 * time.Second

// bound is CleanupTimeout, or what a test says instead.
var bound = CleanupTimeout

// CleanupBound returns CleanupTimeout. A test may have set another: see SetCleanupBound.
func CleanupBound() time.Duration { return bound }

// SetCleanupBound is for TestMain. On a busy machine, cleanup may take longer than CleanupTimeout,
// and what a test looks at would depend on that. Only tests of the timeout itself keep it.
func SetCleanupBound(d time.Duration) { bound = d }

// Cleanup returns a context for work that outlives ctx. It has the values of ctx, does not end
// with ctx, and ends after CleanupBound.
func Cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	return CleanupWithin(ctx, bound)
}

// CleanupWithin is Cleanup with a different timeout.
func CleanupWithin(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), timeout)
}

// Bounded runs f, which may not end with ctx, and waits for it while ctx lives: drivers take no
// context for COMMIT and ROLLBACK, and database/sql locks a connection while it is in use. If there
// is no answer, late runs after f, whenever that is; it may be nil.
func Bounded(ctx context.Context, f func() error, late func()) (answered bool, err error) {
	const running, finished, abandoned = 0, 1, 2
	var state atomic.Int32
	answer := make(chan error, 1)
	go func() {
		answer <- f()
		if !state.CompareAndSwap(running, finished) && late != nil {
			late()
		}
	}()
	select {
	case err := <-answer:
		return true, err
	case <-ctx.Done():
	}
	// The driver may return an error soon, because the same context has ended.
	soon := time.NewTimer(100 * time.Millisecond)
	defer soon.Stop()
	select {
	case err := <-answer:
		return true, err
	case <-soon.C:
	}
	if !state.CompareAndSwap(running, abandoned) {
		return true, <-answer
	}
	return false, fmt.Errorf("no answer within %v of the end of the context: %w", bound, context.Cause(ctx))
}
