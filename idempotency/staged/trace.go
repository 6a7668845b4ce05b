package staged

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// outcomeOf names the outcome of a call. It returns "" for outcomes that all packages share.
func outcomeOf(o idempotency.Outcome, err error) string {
	return once.OutcomeOf[*idempotency.Rejection](o == idempotency.Replayed, o == idempotency.Executed, err, []once.Name{
		{Err: idempotency.ErrInProgress, Name: trace.InProgress},
		{Err: idempotency.ErrMismatch, Name: trace.Mismatch},
		{Err: idempotency.ErrExpired, Name: trace.Expired},
		{Err: idempotency.ErrUnknown, Name: trace.Unknown},
		{Err: idempotency.ErrTooMany, Name: trace.TooMany},
		{Err: idempotency.ErrTooLate, Name: trace.TooLate},
		{Err: idempotency.ErrNested, Name: trace.Nested},
		{Err: ErrInTx, Name: trace.Nested},
		{Err: ErrStale, Name: trace.Stale},
		{Err: ErrNotFound, Name: trace.NotFound},
		{Err: ErrState, Name: trace.Conflict},
	})
}

func outcomeOfEvent(isNew bool, err error) string {
	if err == nil && !isNew {
		return trace.Replayed
	}
	return outcomeOf(idempotency.Executed, err)
}

func outcomeOfStart(isNew bool, err error) string {
	if err == nil && !isNew {
		return trace.Replayed
	}
	return outcomeOf(idempotency.Executed, err)
}

// attempt starts the span of a worker's attempt at an operation.
func (s *Runner[Req, Res, Tx]) attempt(ctx context.Context) (context.Context, trace.Span) {
	return once.StartSpan(ctx, s.transitions.Access.Trace, "staged.attempt", s.workflow.Name)
}

// parked reports that an operation waits for a person.
func (s *Runner[Req, Res, Tx]) parked(ctx context.Context, err error) {
	var p *ParkedError
	if errors.As(err, &p) {
		s.transitions.Access.Trace.Emit(ctx, trace.Event{Name: trace.StagedParked, Operation: s.workflow.Name, Count: 1})
	}
}

// requestID returns the request that ctx works for, or nil.
func requestID(ctx context.Context) any {
	return once.Text(core.RequestID(ctx), maxReference)
}
