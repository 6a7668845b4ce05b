package staged

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// Lookup says what became of an operation, and never executes it: for a status endpoint, for support,
// and after an unknown outcome. op.Name may be empty. With Request or Fingerprint, another request with
// the same key is [idempotency.ErrMismatch]; they may be left out. With Op.Wait, Lookup waits until the
// operation has ended, settles later or is unknown, or until the wait is over; it holds no connection
// in between. The default is one read.
//
// Errors: [idempotency.ErrMismatch], [holdfast.ErrInvalid], [holdfast.ErrSchema], errors of ctx and
// of the driver.
func (s *Runner[Req, Res, Tx]) Lookup(ctx context.Context, op idempotency.Op) (found idempotency.Found[Res], err error) {
	if op.Name != "" && op.Name != s.workflow.Name {
		return found, once.Invalid("Op.Name", "is not the operation's")
	}
	op.Name = s.workflow.Name
	id, compare, err := s.transitions.store.Identify(op)
	if err != nil {
		return found, err
	}
	return s.lookup(ctx, id, op.Wait, compare)
}

// LookupID does what Lookup does, by the ID of Operation or Started. The owner is part of it. The ID of another runner's operation is
// StateAbsent. wait is
// that of Op.Wait: 1 ms to 366 days. Default: one read, as with [holdfast.NoWait].
//
// Errors: those of Lookup.
func (s *Runner[Req, Res, Tx]) LookupID(ctx context.Context, id []byte, wait time.Duration) (found idempotency.Found[Res], err error) {
	key, ok := once.ParseID(id)
	if !ok {
		return found, once.Invalid("id", "is not the ID of an operation")
	}
	if err := once.CheckWait("wait", "one read", wait); err != nil {
		return found, err
	}
	return s.lookup(ctx, key, wait, nil)
}

func (s *Runner[Req, Res, Tx]) lookup(ctx context.Context, id once.ID, wait time.Duration, compare func(int, []byte) error) (found idempotency.Found[Res], err error) {
	ctx, span := once.StartSpan(ctx, s.transitions.Access.Trace, "staged.lookup", s.workflow.Name)
	defer func() { span.End(err, func(err error) string { return outcomeOfLookup(found.State, err) }) }()
	c := &once.Checked{ID: id}
	if wait > 0 {
		bounded, cancel := context.WithTimeout(ctx, wait)
		_, err := s.await(bounded, c)
		cancel()
		if ctx.Err() != nil {
			return found, context.Cause(ctx)
		}
		if errors.Is(err, ErrInTx) {
			return found, err
		}
	}
	row, err := s.transitions.Read(ctx, s.transitions.Access.Pool, id)
	if err != nil || row == nil || row.KeyExpired == 1 || !s.owns(row) {
		return found, err
	}
	if compare != nil {
		if err := compare(row.FingerprintVersion, row.Fingerprint); err != nil {
			return found, err
		}
	}
	return s.found(c, row)
}

// owns reports whether an operation is this runner's. An ID may be another one's, whose request and result are of other types.
func (s *Runner[Req, Res, Tx]) owns(row *ledger.Row) bool {
	return row.Name == s.workflow.Name && row.Namespace == s.transitions.options.Namespace
}

// found describes an operation by its row.
func (s *Runner[Req, Res, Tx]) found(c *once.Checked, row *ledger.Row) (found idempotency.Found[Res], err error) {
	found.Reason, found.Reversed, found.RequestID, found.Program = row.Reason, micros(row.Reversed), row.RequestID, row.Program
	state := seen(row)
	switch state {
	case idempotency.StateWaiting, idempotency.StateSettling:
		found.Due = time.Duration(row.Left) * time.Microsecond
	case idempotency.StateSucceeded, idempotency.StateRejected:
		res, err := s.answer(c, row, idempotency.Replayed)
		if err != nil && !errors.As(err, &found.Rejection) {
			return found, err
		}
		found.Value = res.Value
	}
	found.State = state
	return found, nil
}

func outcomeOfLookup(s idempotency.State, err error) string {
	switch {
	case err != nil:
		return outcomeOf(0, err)
	case s == idempotency.StateAbsent:
		return trace.NotFound
	}
	return trace.Done
}
