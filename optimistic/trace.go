package optimistic

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/internal/trace"
)

// tell starts a call.
func (w work[Tx]) tell(ctx context.Context, name string) (context.Context, trace.Span) {
	return w.access.Trace.Start(ctx, trace.Call{Name: name})
}

// outcome names this package's errors.
func outcome(err error) string {
	switch {
	case errors.Is(err, ErrConflict):
		return trace.Conflict
	case errors.Is(err, ErrNotFound):
		return trace.NotFound
	case errors.Is(err, ErrDuplicate):
		return trace.Duplicate
	}
	return ""
}
