package staged

import (
	"context"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/core"
)

// Package operators sees staged operations from the inside: the API does not show it. A Run carries the type of
// the transactions, which a store in an any does not.
var _ = ledger.RegisterStaged(func(run, store any) any {
	return run.(interface{ inside(store any) any }).inside(store) //nolint:forcetypeassert // it is a *Run
})

func (*Run[Tx]) inside(store any) any {
	return internals[Tx]{newTransitions(store.(*idempotency.Store[Tx]))} //nolint:forcetypeassert // package operators gives it
}

// internals is what package operators calls operations.
type internals[Tx any] struct{ transitions *transitions[Tx] }

// ID identifies the row of an operation.
func (i internals[Tx]) ID(ref Ref) once.ID { return i.transitions.id(ref) }

// CheckRef checks the names that identify an operation.
func (i internals[Tx]) CheckRef(ref Ref) error { return i.transitions.checkRef(ref) }

// List reads operations, in the order of their IDs.
func (i internals[Tx]) List(ctx context.Context, from ledger.Selection) ([]Operation, error) {
	found, err := i.transitions.List(ctx, i.transitions.Access.Pool, from)
	if err != nil {
		return nil, i.transitions.Explain(err)
	}
	return i.transitions.list(found, from.Records)
}

// Show reads an operation with its steps, events and interventions. It returns ErrNotFound if
// there is none.
func (i internals[Tx]) Show(ctx context.Context, id once.ID) (*Operation, error) {
	return i.transitions.showToResolve(ctx, i.transitions.Access.Pool, id)
}

// ResolveStep stores the outcome of the external call at which row is parked, or which has begun,
// and continues the operation. The row is locked. action and field name the caller and its result
// in errors.
func (i internals[Tx]) ResolveStep(ctx context.Context, q core.Querier, id once.ID, row *ledger.Row, action, field string, how StepOutcome, result any, rejection *idempotency.Rejection) error {
	return i.transitions.resolveStep(ctx, q, id, row, &finding{action: action, field: field, step: row.Step, how: how, result: result, rejection: rejection})
}

// Cancel ends an operation that has done no step, or without begun keeps one from beginning. Only the latter inserts a row.
func (i internals[Tx]) Cancel(ctx context.Context, q core.Querier, ref Ref, begun bool, reason string) (idempotency.Outcome, error) {
	checked, err := i.transitions.store.Check(idempotency.Op{Owner: ref.Owner, Name: ref.Name, Key: ref.Key, NoFingerprint: true})
	if err != nil {
		return 0, err
	}
	c := &cancelling[Tx]{id: checked.ID}
	if !begun {
		c.name, c.key, c.version = ref.Name, checked.Key, checked.FingerprintVersion
	}
	if err := c.prepare(i.transitions, reason); err != nil {
		return 0, err
	}
	var none Tx // there is no Undo
	return i.transitions.cancel(ctx, none, q, c)
}

// PackRejection encodes the rejection of an operation.
func (i internals[Tx]) PackRejection(id once.ID, v *idempotency.Rejection) ([]byte, error) {
	return i.transitions.pack(id, verdict(true), v)
}

// PackAs encodes the result of an operation that an operator gives for a stored type.
func (i internals[Tx]) PackAs(id once.ID, resultType, field string, v any) ([]byte, error) {
	return i.transitions.packAs(id, verdict(false), resultType, field, v)
}
