package core

import (
	"context"
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
