package operators

import (
	"context"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/core"
)

// operations is what package staged does for an operator, and does not show to programs.
type operations interface {
	// ID identifies the row of an operation.
	ID(ref staged.Ref) once.ID
	// CheckRef checks the names that identify an operation.
	CheckRef(ref staged.Ref) error
	// List reads operations, in the order of their IDs.
	List(ctx context.Context, from ledger.Selection) ([]staged.Operation, error)
	// Show reads an operation with its steps, events and interventions. It returns ErrNotFound if
	// there is none.
	Show(ctx context.Context, id once.ID) (*staged.Operation, error)
	// ResolveStep stores the outcome of the external call at which row is parked, or which has begun,
	// and continues the operation. The row is locked. action and field name the caller and its result
	// in errors.
	ResolveStep(ctx context.Context, q core.Querier, id once.ID, row *ledger.Row, action, field string, how staged.StepOutcome, result any, rejection *idempotency.Rejection) error
	// Cancel ends an operation that has done no step, or keeps one that has not begun from beginning.
	Cancel(ctx context.Context, q core.Querier, ref staged.Ref, begun bool, reason string) (idempotency.Outcome, error)
	// PackRejection encodes the rejection of an operation.
	PackRejection(id once.ID, v *idempotency.Rejection) ([]byte, error)
	// PackAs encodes the result of an operation that an operator gives for a stored type.
	PackAs(id once.ID, resultType, field string, v any) ([]byte, error)
}

func operationsOf[Tx any](s *idempotency.Store[Tx]) operations {
	return ledger.OfStaged(&staged.Run[Tx]{}, s).(operations) //nolint:forcetypeassert // package staged returns it
}
