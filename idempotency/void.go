package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/errcode"
)

// CodeVoided is the Rejection.Code of an operation that Void has ended before it was
// done. Rejection.Message is the reason.
const CodeVoided = "voided"

// ErrTooLate means that an operation cannot be voided any more. A *TooLateError says what became of it.
var ErrTooLate = errcode.New("void-too-late", "idempotency: too late to void")

// TooLateError says what became of an operation that Void came too late for. Nothing
// was changed. errors.Is(err, ErrTooLate) holds.
type TooLateError struct {
	// State is StateSucceeded, StateRejected (it was refused before, so nothing was executed), StateUnknown, or one of
	// the expired ones. A staged operation that has begun may have others, too.
	State State
	// BusinessID is the result's business id, Rejection why it was rejected. Lookup has the result.
	BusinessID string
	Rejection  *Rejection
	// Reason says what keeps a staged operation that has not ended from being cancelled.
	Reason string
}

func (e *TooLateError) Error() string {
	text := fmt.Sprintf("%v: the operation is %v", ErrTooLate, e.State)
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return text
}

// Is reports whether target is ErrTooLate.
func (e *TooLateError) Is(target error) bool { return target == ErrTooLate }

// Void ends the key of an operation that was not executed, so that it never is: for a cancel that may
// overtake its original. The key gets a final [Rejection] with [CodeVoided] and the reason, which every later Do and
// DoTx with it returns, whatever its request. It is kept as long as the key of an executed operation, by KeyTTL,
// and not by RejectionTTL or ResultTTL: a KeyTTL must be longer than an original can be late.
//
// The outcome is Executed if this call has voided the operation, and Replayed if another call had. If the
// operation was done or rejected before, or the reason of its void was erased, the error is [ErrTooLate], and
// nothing changes. While another call is at the operation, Void waits for it as a duplicate does, as Op.Wait says.
//
// Never both: a void is a claim of its key like any other call's; see internal/test/model/lockfirst.pml and
// claimfirst.pml.
//
// Void uses only Owner, Name, Key and Wait of op. reason is stored; it has at most 500 bytes.
//
// Errors: [ErrTooLate], [ErrInProgress], [ErrUnknown] (call it again), [ErrNested], [ErrTooMany], [holdfast.ErrRetry],
// [holdfast.ErrInvalid], [holdfast.ErrSchema], errors of ctx and of the driver.
func (s *Store[Tx]) Void(ctx context.Context, op Op, reason string) (o Outcome, err error) {
	ctx, span := once.StartSpan(ctx, s.access.Trace, "idempotency.void", op.Name)
	defer func() { span.End(err, func(err error) string { return outcomeOf(o, err) }) }()
	s, c, no, err := s.voiding(ctx, op, reason)
	if err != nil {
		return 0, err
	}
	if _, err := once.Enter(ctx, s.flights, c.hash, true); err != nil {
		return 0, err
	}
	p := &pending{call: c, deadline: time.Now().Add(c.wait)}
	for {
		f, leads := s.flights.Join(c.hash)
		var r *record
		if leads {
			r, o, err = s.lead(ctx, p, f, nil, func(context.Context, access.OwnTx[Tx]) (storedResult, error) { return no, nil }, &span)
		} else {
			r, err = f.Follow(ctx, once.WaitPolicy{NoWait: c.noWait, Wait: c.wait, Deadline: p.deadline})
			o, err = Replayed, inProgress(err)
		}
		switch {
		case err != nil:
			return 0, err
		case r != nil && o == Replayed:
			return s.voided(c, r)
		case r != nil:
			return o, nil
		}
	}
}

// voiding checks a void. It returns the store that keeps its rejection as long as a key, and that rejection.
func (s *Store[Tx]) voiding(ctx context.Context, op Op, reason string) (keeps *Store[Tx], c *call, no storedResult, err error) {
	if err := once.CheckReason(reason); err != nil {
		return nil, nil, no, err
	}
	c, err = s.check(Op{Owner: op.Owner, Name: op.Name, Key: op.Key, Wait: op.Wait, NoFingerprint: true})
	if err != nil {
		return nil, nil, no, err
	}
	c.requestID = requestID(ctx)
	keeps = internals[Tx]{s}.KeepsRejections()
	keeps.options.ResultTTL = keeps.options.KeyTTL // the reason is all that says that it was a void
	no, err = keeps.options.encode(c, rejected, &Rejection{Code: CodeVoided, Message: reason})
	return keeps, c, no, err
}

// voided judges a record that was there before a Void.
func (s *Store[Tx]) voided(c *call, r *record) (Outcome, error) {
	late := &TooLateError{State: r.seen(), BusinessID: r.businessID}
	if late.State == StateRejected {
		_, err := answer[struct{}](s, c, r, Replayed)
		if !errors.As(err, &late.Rejection) {
			return 0, err
		}
		if late.Rejection.Code == CodeVoided {
			return Replayed, nil
		}
	}
	return 0, late
}
