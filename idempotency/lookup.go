package idempotency

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// State is the state of an operation, for its callers and for operators.
type State int

// The states of operations. Only staged operations wait or settle.
const (
	// StateAbsent: no call asked for the operation, or its transaction has not committed and
	// the engine does not show it, or its KeyTTL is over.
	StateAbsent State = ledger.SeenAbsent
	// StateInProgress: a call or a worker is at it.
	StateInProgress State = ledger.SeenInProgress
	// StateWaiting: it waits for its next attempt.
	StateWaiting State = ledger.SeenWaiting
	// StateSettling: a provider has accepted it and settles it later.
	StateSettling State = ledger.SeenSettling
	// StateUnknown: its outcome is not known, and it waits for a person or a provider event.
	StateUnknown State = ledger.SeenUnknown
	// StateSucceeded: done, with a result. StateRejected: refused for good.
	StateSucceeded State = ledger.SeenSucceeded
	StateRejected  State = ledger.SeenRejected
	// StateSucceededExpired, StateRejectedExpired: the same, and the result is no longer kept: its
	// ResultTTL is over, or an operator has erased it.
	StateSucceededExpired State = ledger.SeenSucceededExpired
	StateRejectedExpired  State = ledger.SeenRejectedExpired
)

func (s State) String() string {
	return [...]string{
		"absent", "in progress", "waiting", "settling", "unknown", "succeeded", "rejected",
		"succeeded and expired", "rejected and expired",
	}[s]
}

// Final reports whether the state does not change any more, but for an expiry.
func (s State) Final() bool { return s >= StateSucceeded }

// Found is what Lookup has found.
type Found[T any] struct {
	State State
	// Value is the result if the state is StateSucceeded, Rejection if it is StateRejected.
	Value     T
	Rejection *Rejection
	// BusinessID is the result's business id, also after it has expired (see Identified).
	BusinessID string
	// Reason says why a staged operation waits or is unknown. It may quote an error of a provider.
	Reason string
	// Due is the time until a waiting operation is tried again, or until the deadline of a settling
	// one; negative if it is late.
	Due time.Duration
	// Reversed is when a staged operation that succeeded was first reported as taken back; zero
	// for never.
	Reversed time.Time
	// RequestID is the request for which the operation was executed (see holdfast.WithRequestID); it
	// goes with the result. Program is the version of the program, of staged operations only:
	// operators.Operators.Show has it for each.
	RequestID, Program string
}

// Lookup says what became of an operation, and never executes it: for a status endpoint and for support.
// After ErrUnknown it is no answer while it says absent, because the commit may still be on its way: only a call with
// the same key, or Void, settles that. T is the type of the result, as in [Do]. With Request or Fingerprint, another
// request with the same key is ErrMismatch; they may be left out. With Op.Wait, Lookup repeats its read
// until the state is final or the wait is over, and holds no connection in between; the default is one
// read. Lookup of staged.Runner is for staged operations.
//
// Another call that is in progress shows only on an engine that lets others see it (not on SQLite, and
// not on every isolation level); otherwise the state is StateAbsent until it commits.
//
// Errors: [ErrMismatch], [holdfast.ErrInvalid], [holdfast.ErrSchema], errors of ctx and of the driver.
func Lookup[T, Tx any](ctx context.Context, s *Store[Tx], op Op) (found Found[T], err error) {
	ctx, span := once.StartSpan(ctx, s.access.Trace, "idempotency.lookup", op.Name)
	defer func() { span.End(err, func(error) string { return nameOf(found.State, err) }) }()
	wait := op.Wait
	if op.Request == nil && op.Fingerprint == nil {
		op.NoFingerprint = true
	}
	c, err := s.check(op)
	if err != nil {
		return found, err
	}
	err = once.Poll(ctx, wait, func() (bool, error) {
		found, err = lookup[T](ctx, s, c)
		return found.State.Final() || found.State == StateUnknown, err
	})
	return found, err
}

func lookup[T, Tx any](ctx context.Context, s *Store[Tx], c *call) (found Found[T], err error) {
	r, _, err := s.look(ctx, s.access.Pool, c)
	switch {
	case err != nil:
		return found, err
	case r == nil:
		busy, err := s.inFlight(ctx, c)
		if busy {
			found.State = StateInProgress
		}
		return found, err
	}
	found.BusinessID, found.RequestID = r.businessID, r.requestID
	if c.op.NoFingerprint {
		r.fingerprint = nil
	}
	res, err := answer[T](s, c, r, Replayed)
	found.Value = res.Value
	if err != nil && !errors.As(err, &found.Rejection) && !errors.Is(err, ErrExpired) && !errors.As(err, new(*UnfinishedError)) {
		return found, err
	}
	found.State = r.seen()
	return found, nil
}

// nameOf names the outcome of a lookup in a span.
func nameOf(s State, err error) string {
	switch {
	case errors.Is(err, ErrMismatch):
		return trace.Mismatch
	case err != nil:
		return ""
	case s == StateAbsent:
		return trace.NotFound
	}
	return trace.Done
}
