package staged

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/core"
)

// Started is an operation that StartTx has begun, or found.
type Started[Res any] struct {
	Ref
	// ID identifies the operation's row, as Operation.ID.
	ID []byte
	// New reports whether this transaction begins the operation. If it is false, the operation was
	// begun before, with the same request.
	New bool

	committed func()
	wait      func(ctx context.Context) (idempotency.Result[Res], error)
}

// Committed says that the transaction has committed: a completer of this process ([Runner.RunCompleter])
// continues the operation at once, instead of at its next pass. It does not wait. Do, InTx and
// package idemhttp call it for what their functions have started; after a commit of your own, call
// it yourself. A call without a commit is harmless.
func (s *Started[Res]) Committed() { s.committed() }

// Address returns what identifies the operation: its owner, its name and its ID.
func (s *Started[Res]) Address() (owner, name string, id []byte) { return s.Owner, s.Name, s.ID }

// Wait waits for the end of the operation, once the transaction has committed, and returns what
// [Runner.Do] would return to a duplicate. Some process must run a completer. Wait holds no connection,
// and needs no statement while the operation is in progress in this process. It calls Committed.
//
// Errors: those of Do for an operation that has ended, or is parked; *[AcceptedError];
// [idempotency.ErrInProgress], with the cause of ctx, if ctx ends first; [ErrNotFound] if the
// transaction did not commit; [ErrInTx] with the context of a function within a transaction;
// [holdfast.ErrSchema], errors of the driver.
func (s *Started[Res]) Wait(ctx context.Context) (idempotency.Result[Res], error) { return s.wait(ctx) }

// StartTx begins the operation in the caller's transaction: of [idempotency.Do], [idempotency.DoTx],
// InTx, an HTTP handler behind package idemhttp, or your own. The operation is committed, or rolled
// back, with everything else in tx. Nothing of it runs before the commit. Then a completer continues
// it: one of this process at once (see [Started.Committed]), or one of any process at its next pass,
// also after a crash.
//
// The same key again finds the operation, in any state, once the first transaction has committed.
// StartTx waits for a transaction that is still open, as long as Op.Wait and the store's
// LockTimeout say. op.Name may be empty, and op.Request (unless a Fingerprint is given) is request.
//
// After a nil error and [idempotency.ErrMismatch] the transaction can continue. After
// [holdfast.ErrInvalid] it is untouched. After every other error, such as [idempotency.ErrTooMany],
// Holdfast has rolled tx back: run the whole transaction again ([holdfast.ErrRetry],
// [idempotency.ErrInProgress]), or give up.
func (s *Runner[Req, Res, Tx]) StartTx(ctx context.Context, tx Tx, op idempotency.Op, request Req) (started *Started[Res], err error) {
	ctx, span := once.StartSpan(ctx, s.transitions.Access.Trace, "staged.start", s.workflow.Name)
	defer func() {
		span.End(err, func(err error) string { return outcomeOfStart(started != nil && started.New, err) })
	}()
	c, err := s.check(op, request)
	if err != nil {
		return nil, err
	}
	stored, err := packed(s.transitions, c.ID, ofRequest, request, &request)
	if err != nil {
		return nil, err
	}
	wait := c.Wait
	if op.Wait == holdfast.NoWait {
		wait = time.Millisecond
	}
	started = &Started[Res]{Ref: Ref{op.Owner, s.workflow.Name, op.Key}, ID: c.ID.Bytes()}
	mismatch := func(err error) bool { return errors.Is(err, idempotency.ErrMismatch) }
	err = s.transitions.store.InTx(ctx, tx, wait, mismatch, func(q core.Querier) error {
		row, err := s.start(ctx, q, c, stored)
		if err != nil {
			return err
		}
		if started.New = row.Mine; row.Mine {
			return s.transitions.store.Admit(ctx, q, c.ID.Owner, 1)
		}
		span.Original = row.RequestID
		return c.Compare(row.FingerprintVersion, row.Fingerprint)
	})
	if err != nil {
		return nil, err
	}
	started.committed = func() { s.local.nudge(c.ID) }
	started.wait = func(ctx context.Context) (idempotency.Result[Res], error) { return s.await(ctx, c) }
	once.OnCommit(ctx, started.committed)
	return started, nil
}

// start inserts an operation without a worker, due at once, or finds it. Its attempt only tells whose
// row it is: its lease is over, and its first worker replaces it.
func (s *Runner[Req, Res, Tx]) start(ctx context.Context, q core.Querier, c *once.Checked, stored []byte) (row *ledger.Row, err error) {
	attempt := once.RandomID()
	insert := s.inserting(ctx, c, stored, attempt, 0, 0)
	for range 2 {
		// The insert comes first: a read would fix a snapshot that is older than the wait.
		if _, err := s.transitions.SQL.Insert.Exec(ctx, q, insert...); err != nil {
			return nil, &once.ClaimError{Err: err}
		}
		if row, err = s.transitions.Read(ctx, q, c.ID); err == nil && row == nil {
			row, err = s.transitions.Latest(ctx, q, c.ID) // it was committed after the snapshot
		}
		switch {
		case err != nil:
			return nil, err
		case row == nil:
			return nil, &holdfast.RetryError{Attempts: 1, Err: errors.New("staged: the operation is not to be seen in this transaction")}
		case row.KeyExpired == 0:
			row.Own(attempt, time.Time{})
			return row, nil
		}
		if _, err := s.transitions.Forget(ctx, q, c.ID); err != nil {
			return nil, err
		}
	}
	return nil, &holdfast.RetryError{Attempts: 1, Err: errors.New("staged: the operation's KeyTTL was over twice")}
}
