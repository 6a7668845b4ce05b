package core

import (
	"context"
	"fmt"
	"sync"
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

// Cleanups returns contexts as Cleanup does, for many short calls: they share a timer. Each ends
// after CleanupBound at most, and not before seven eighths of it. The zero value is ready.
type Cleanups struct {
	mu    sync.Mutex
	end   context.Context
	until time.Time // end is for calls that begin before
}

// Context returns the context of a call.
func (c *Cleanups) Context(ctx context.Context) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); c.end == nil || !now.Before(c.until) {
		c.until = now.Add(bound / 8)
		end, cancel := context.WithTimeout(context.Background(), bound)
		context.AfterFunc(end, cancel) // not before: calls share it
		c.end = end
	}
	return &cleanup{c.end, ctx}
}

// cleanup ends with its Context, and has the values of another one.
type cleanup struct {
	context.Context

	values context.Context
}

// Value implements context.Context. Only the context that ends knows itself.
func (c *cleanup) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
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
