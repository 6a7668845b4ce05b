package core

import (
	"context"
	"time"
)

// CleanupTimeout bounds a rollback, a release and the return of a connection.
const CleanupTimeout = 5 * time.Second

// Cleanup returns a context for work that outlives ctx. It has the values of ctx, does not end
// with ctx, and ends after CleanupTimeout.
func Cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	return CleanupWithin(ctx, CleanupTimeout)
}

// CleanupWithin is Cleanup with a different timeout.
func CleanupWithin(ctx context.Context, bound time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), bound)
}
