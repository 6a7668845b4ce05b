package staged

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/core"
)

// Cancel ends an operation that has called nothing outside, as rejected with [idempotency.CodeVoided] and the
// reason. It may come before its original: an operation that was not begun yet is kept from ever being, whatever
// its request. Whoever has the operation loses it, and gets [ErrStale] at its next step.
//
// Workflow.Undo runs in the transaction of Cancel. Without it, an operation that has done a step is too late. So is
// one that has begun an external call, unless the call was proved not to be done ([NotDone]), and one of a
// database that was restored since.
//
// The outcome is Executed if this call has cancelled the operation, and Replayed if another call had. Cancel
// uses only Owner, Key and Name of op; reason has at most 500 bytes. StartTx finds an operation that was
// cancelled before it began, with Started.New false.
//
// Errors: [idempotency.ErrTooLate], an *[idempotency.TooLateError] that says what became of the operation;
// [idempotency.ErrUnknown] (call it again), [idempotency.ErrTooMany], [idempotency.ErrNested], [ErrInTx],
// [holdfast.ErrRetry], [holdfast.ErrInvalid], [holdfast.ErrSchema], errors of ctx, of Undo and of the driver.
func (s *Runner[Req, Res, Tx]) Cancel(ctx context.Context, op idempotency.Op, reason string) (idempotency.Outcome, error) {
	if op.Name != "" && op.Name != s.workflow.Name {
		return 0, once.Invalid("Op.Name", "is not the operation's")
	}
	c, err := s.transitions.store.Check(idempotency.Op{Owner: op.Owner, Name: s.workflow.Name, Key: op.Key, NoFingerprint: true})
	if err != nil {
		return 0, err
	}
	return s.cancel(ctx, &cancelling[Tx]{id: c.ID, name: s.workflow.Name, key: c.Key, version: c.FingerprintVersion}, reason)
}

// CancelID does what Cancel does, by the ID of Operation or Started. The owner is part of it. An operation that was
// not begun, or is another runner's, is [ErrNotFound].
//
// Errors: those of Cancel, ErrNotFound.
func (s *Runner[Req, Res, Tx]) CancelID(ctx context.Context, id []byte, reason string) (idempotency.Outcome, error) {
	key, ok := once.ParseID(id)
	if !ok {
		return 0, once.Invalid("id", "is not the ID of an operation")
	}
	return s.cancel(ctx, &cancelling[Tx]{id: key, owns: s.owns}, reason)
}

func (s *Runner[Req, Res, Tx]) cancel(ctx context.Context, c *cancelling[Tx], reason string) (o idempotency.Outcome, err error) {
	ctx, span := once.StartSpan(ctx, s.transitions.Access.Trace, "staged.cancel", s.workflow.Name)
	defer func() { span.End(err, func(err error) string { return outcomeOf(o, err) }) }()
	if err := s.outside(ctx); err != nil {
		return 0, err
	}
	if _, err := s.transitions.store.Enter(ctx, c.id.Hash); err != nil {
		return 0, err
	}
	if s.workflow.Undo != nil {
		c.undo = s.undo
	}
	if err := c.prepare(s.transitions, reason); err != nil {
		return 0, err
	}
	var late *idempotency.TooLateError
	err = s.transitions.Write(ctx, func(ctx context.Context, tx Tx, q core.Querier) (err error) {
		late = nil // of a transaction before, whose commit is not known
		o, err = s.transitions.cancel(ctx, tx, q, c)
		if errors.As(err, &late) { // there is nothing to roll back
			return nil
		}
		return err
	})
	s.local.moved(c.id)
	switch {
	case err != nil:
		return 0, err
	case late != nil:
		return 0, late
	}
	return o, nil
}

// undo reads what Workflow.Undo gets, and returns it to be run.
func (s *Runner[Req, Res, Tx]) undo(ctx context.Context, q core.Querier, id once.ID, row *ledger.Row) (func(ctx context.Context, tx Tx) error, error) {
	var request Req
	err := s.transitions.unpack(id, ofRequest, row.Request, &request)
	var op *Operation
	if err == nil {
		op, err = s.transitions.show(ctx, q, id)
	}
	if err != nil {
		return nil, s.undone(err)
	}
	return func(ctx context.Context, tx Tx) error { return s.undone(s.workflow.Undo(ctx, tx, request, *op)) }, nil
}

func (s *Runner[Req, Res, Tx]) undone(err error) error {
	if err != nil {
		err = &once.FuncError{Err: once.Inner(s.transitions.Access.Explain(err))}
	}
	return err
}

// cancelling is one cancel.
type cancelling[Tx any] struct {
	id once.ID
	// name, key and version are those of an operation that may not have begun; name is empty if there is one.
	name    string
	key     []byte
	version int
	owns    func(row *ledger.Row) bool // nil: the name is part of the id
	attempt []byte                     // it marks the row, for a commit in doubt
	result  []byte                     // the rejection
	undo    func(ctx context.Context, q core.Querier, id once.ID, row *ledger.Row) (func(ctx context.Context, tx Tx) error, error)
}

func (c *cancelling[Tx]) prepare(s *transitions[Tx], reason string) (err error) {
	if err := once.CheckReason(reason); err != nil {
		return err
	}
	c.attempt = once.RandomID()
	c.result, err = s.pack(c.id, verdict(true), &idempotency.Rejection{Code: idempotency.CodeVoided, Message: reason})
	return err
}

// cancel ends an operation, or writes the row of one that has not begun. Its model is
// internal/test/model/staged.pml. It returns a *TooLateError if it changed nothing.
func (s *transitions[Tx]) cancel(ctx context.Context, tx Tx, q core.Querier, c *cancelling[Tx]) (idempotency.Outcome, error) {
	for range 2 {
		// The insert comes first: a read would fix a snapshot that is older than the wait.
		if c.name != "" {
			kept := s.lives()[1] // the reason is all that says that it was cancelled
			if _, err := s.SQL.Void.Exec(ctx, q, c.id.Args(s.options.Namespace, c.name, c.key, c.version, c.result, c.attempt, kept, kept)...); err != nil {
				return 0, err
			}
		}
		row, err := s.Latest(ctx, q, c.id)
		switch {
		case err != nil:
			return 0, err
		case c.name == "" && (row == nil || c.owns != nil && !c.owns(row)):
			return 0, ErrNotFound
		case row == nil:
			return 0, &holdfast.RetryError{Attempts: 1, Err: errors.New("staged: the operation is not to be seen in this transaction")}
		case bytes.Equal(row.Attempt, c.attempt):
			if row.Request == nil { // it had not begun
				if err := s.store.Admit(ctx, q, c.id.Owner, 1); err != nil {
					return 0, &once.FuncError{Err: err}
				}
			}
			return idempotency.Executed, nil
		case row.KeyExpired == 0:
			return s.cancelRow(ctx, tx, q, c, row)
		}
		if _, err := s.Forget(ctx, q, c.id); err != nil {
			return 0, err
		}
	}
	return 0, &holdfast.RetryError{Attempts: 1, Err: errors.New("staged: the operation's KeyTTL was over twice")}
}

// cancelRow ends an operation whose row is locked.
func (s *transitions[Tx]) cancelRow(ctx context.Context, tx Tx, q core.Querier, c *cancelling[Tx], row *ledger.Row) (idempotency.Outcome, error) {
	late := &idempotency.TooLateError{State: seen(row)}
	if row.State != ledger.Pending && row.State != ledger.Parked {
		if late.State != idempotency.StateRejected {
			return 0, late
		}
		late.Rejection = &idempotency.Rejection{}
		if err := s.unpack(c.id, verdict(true), row.Result, late.Rejection); err != nil {
			return 0, err
		}
		if late.Rejection.Code == idempotency.CodeVoided {
			return idempotency.Replayed, nil
		}
		return 0, late
	}
	var err error
	if late.Reason, err = s.begun(ctx, q, c.id, row, c.undo != nil); err != nil {
		return 0, err
	}
	if late.Reason != "" {
		return 0, late
	}
	undo := func(context.Context, Tx) error { return nil }
	if c.undo != nil {
		if undo, err = c.undo(ctx, q, c.id, row); err != nil {
			return 0, err
		}
	}
	// Before Undo: if that ends the transaction itself, what it has taken back is not taken back again.
	if _, err = s.SQL.Cancel.Exec(ctx, q, c.id.Args(append([]any{c.result, c.attempt}, s.lives()...)...)...); err != nil {
		return 0, err
	}
	return idempotency.Executed, undo(ctx, tx)
}

// begun says what keeps an operation from being cancelled; empty for nothing. The row is locked.
func (s *transitions[Tx]) begun(ctx context.Context, q core.Querier, id once.ID, row *ledger.Row, undone bool) (string, error) {
	if row.Restored == 1 {
		return "the database was restored since, and a call may have been made that is not in it", nil
	}
	steps, err := parts(ctx, s, q, s.SQL.Steps, id, scanStep)
	if err != nil {
		return "", err
	}
	for _, st := range steps {
		switch {
		case st.State == NotBegun:
		case st.ProviderKey != "":
			return fmt.Sprintf("the call of step %q has begun (%v)", st.Name, st.State), nil
		case st.State == Begun:
			return fmt.Sprintf("step %q has begun, and what it did is committed without its result", st.Name), nil
		case !undone:
			return fmt.Sprintf("step %q is done, and there is no Workflow.Undo", st.Name), nil
		}
	}
	return "", nil
}
