package operators

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/inside"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/core"
)

// errNothing rolls back an intervention that had nothing to do.
var errNothing = errors.New("nothing to do")

// Cancel ends an operation that was not executed, and records the actor and the reason in the same transaction: what
// [staged.Runner.Cancel] does for a staged operation that has done no step, and [idempotency.Store.Void] for a
// record of Do. It runs no Workflow.Undo: what the transaction of an operation's StartTx has written stays, so cancel
// those with [staged.Runner.Cancel]. A key that was never used is kept from being used by either: that inserts rows, which the role of
// operators may not do, so it needs the role of the program ([holdfast.ErrDenied]). The reason is stored with the
// rejection, too, which callers see.
//
// The outcome is Executed if this call has ended the operation, and Replayed if an earlier one had.
//
// Errors: [idempotency.ErrTooLate], an *[idempotency.TooLateError] that says what became of the operation;
// [idempotency.ErrInProgress], [idempotency.ErrUnknown], [idempotency.ErrTooMany], [holdfast.ErrRetry], [holdfast.ErrInvalid],
// errors of the driver.
func (o *Operators[Tx]) Cancel(ctx context.Context, ref staged.Ref, who holdfast.Actor) (outcome idempotency.Outcome, err error) {
	if err := once.FirstOf(check(who), o.staged.CheckRef(ref)); err != nil {
		return 0, err
	}
	id := o.staged.ID(ref)
	err = o.intervene(ctx, id, "cancel", who, whole, func(ctx context.Context, q core.Querier, _ bool) (err error) {
		row, err := o.ledger.Touch(ctx, q, id)
		begun := err == nil && row.KeyExpired == 0
		if errors.Is(err, staged.ErrNotFound) || err == nil && !begun {
			op := idempotency.Op{Owner: ref.Owner, Name: ref.Name, Key: ref.Key}
			outcome, err = inside.Of(o.store).Void(ctx, q, op, who.Reason)
		}
		if err == nil {
			var of idempotency.Outcome
			if of, err = o.staged.Cancel(ctx, q, ref, begun, who.Reason); begun || of == idempotency.Executed {
				outcome = of
			}
		}
		if err == nil && outcome == idempotency.Replayed {
			err = errNothing
		}
		if err != nil {
			err = &once.FuncError{Err: err} // it is definite
		}
		return err
	})
	if errors.Is(err, errNothing) {
		err = nil
	}
	return outcome, err
}
