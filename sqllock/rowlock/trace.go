package rowlock

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/internal/trace"
)

// startSpan reports the start of a call to the tracers.
func (l *locks[Tx]) startSpan(ctx context.Context, name string) (context.Context, trace.Span) {
	return l.access.Trace.Start(ctx, trace.Call{Name: name})
}

// acquired names the outcome of a call that acquires a lock.
func acquired(err error) string {
	switch {
	case err == nil:
		return trace.Acquired
	case errors.Is(err, ErrTimeout):
		return trace.TimedOut
	case errors.Is(err, ErrLockNotAvailable):
		return trace.LockNotAvailable
	case errors.Is(err, ErrNotFound):
		return trace.NotFound
	case errors.Is(err, ErrLost):
		return trace.Lost
	}
	return ""
}
