package idempotency

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/internal/trace"
)

// outcomeOf names what a call came to; "" leaves that to what all packages share.
func outcomeOf(o Outcome, err error) string {
	var rej *Rejection
	switch {
	case o == Replayed: // a rejection, maybe
		return trace.Replayed
	case err == nil && o == Executed:
		return trace.Executed
	case err == nil:
		return trace.Aborted // the function panicked
	case errors.As(err, &rej):
		return trace.Rejected
	}
	for _, o := range []struct {
		is   error
		name string
	}{
		{ErrInProgress, trace.InProgress},
		{ErrMismatch, trace.Mismatch},
		{ErrExpired, trace.Expired},
		{ErrUnknown, trace.Unknown},
		{ErrNested, trace.Nested},
		{ErrOtherKey, trace.OtherKey},
		{ErrStale, trace.Stale},
		{ErrNotFound, trace.NotFound},
		{ErrState, trace.Conflict},
	} {
		if errors.Is(err, o.is) {
			return o.name
		}
	}
	return ""
}

func outcomeOfNews(isNew bool, err error) string {
	if err == nil && !isNew {
		return trace.Replayed
	}
	return outcomeOf(Executed, err)
}

// tell starts a call; operation is the name that the program gave.
func tell(ctx context.Context, t *trace.Tracer, name, operation string) (context.Context, trace.Span) {
	return t.Start(ctx, trace.Call{Name: name, Operation: operation})
}

// attempt starts a worker's attempt at an operation.
func (s *Staged[Tx, Req, Res]) attempt(ctx context.Context) (context.Context, trace.Span) {
	return tell(ctx, s.rows.store.access.Trace, "staged.attempt", s.stages.Name)
}

// parked tells that an operation waits for a person.
func (s *Staged[Tx, Req, Res]) parked(ctx context.Context, err error) {
	var p *ParkedError
	if errors.As(err, &p) {
		s.rows.store.access.Trace.Tell(ctx, trace.Fact{Name: trace.StagedParked, Operation: s.stages.Name, Count: 1})
	}
}
