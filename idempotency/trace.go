package idempotency

import (
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// outcomeOf names the outcome of a call. It returns "" for outcomes that all packages share.
func outcomeOf(o Outcome, err error) string {
	return once.OutcomeOf[*Rejection](o == Replayed, o == Executed, err, []once.Name{
		{Err: ErrInProgress, Name: trace.InProgress},
		{Err: ErrMismatch, Name: trace.Mismatch},
		{Err: ErrSimilar, Name: trace.Similar},
		{Err: ErrExpired, Name: trace.Expired},
		{Err: ErrUnknown, Name: trace.Unknown},
		{Err: ErrTooMany, Name: trace.TooMany},
		{Err: ErrTooLate, Name: trace.TooLate},
		{Err: ErrNested, Name: trace.Nested},
	})
}
