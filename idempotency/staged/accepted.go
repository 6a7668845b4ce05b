package staged

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/options"
)

// Bounds of the names that a provider has, in bytes.
const (
	maxReference = 255
	maxProvider  = 64
)

// acceptedError marks the answer of a provider that settles a call later.
type acceptedError struct {
	reference string
	within    time.Duration
}

func (e *acceptedError) Error() string {
	return fmt.Sprintf("accepted by the provider, which settles it within %v", e.within)
}

// Accepted is the error with which the function of an external call, or its Reconcile, says that the
// provider has accepted the call and settles it later, as bank transfers and many refunds are. The
// step is then [Settling], not unknown: it needs no person and no worker.
//
// reference is the provider's own name for the call, at most 255 bytes, by which an event finds it
// (ProviderEvent.Reference); empty if it has none. within is the time until the deadline, by the
// database's clock: 50 ms to 10 years. An event with an Outcome settles the step, and
// the operation goes on. Past the deadline the step is reconciled, called again or parked, as its
// [ExternalCall] says.
func Accepted(reference string, within time.Duration) error {
	return &acceptedError{reference, within}
}

// callingKey finds the external call of a context.
type callingKey struct{}

// SetReference keeps the provider's own name for a call, such as "ch_3MmlLrLkdIwHu7ix", with its
// step, regardless of what the call then answers, unless the worker loses the operation. ctx is that of the
// function of an external call, or of its Reconcile. A later event finds the operation by it
// (ProviderEvent.Reference). A step has one reference: a later call's replaces it. At most 255
// bytes; a longer one is cut.
//
// SetReference panics if ctx is of no external call.
func SetReference(ctx context.Context, reference string) {
	callOf(ctx, "SetReference").reference = reference
}

// settlesLater stores that the provider settles the call later, and ends the attempt.
func settlesLater[T, Tx any](ctx context.Context, r *Run[Tx], at *calling, later *acceptedError) (value T, err error) {
	err = options.Life.Or("").UpTo(maxSettles).Check("Accepted, within", later.within)
	if once.Cut(later.reference, maxReference) != later.reference {
		err = once.Invalid("Accepted", fmt.Sprintf("the reference is not at most %d bytes of UTF-8 without NUL", maxReference))
	}
	var row *ledger.StepRow
	if err == nil {
		if at.reference = cmp.Or(later.reference, at.reference); at.reference != "" {
			later.reference = once.Cut(at.reference, maxReference)
		}
		row, err = r.transitions.accept(ctx, r, at.step, at.provider, later)
	}
	switch {
	case err != nil && r.note(err) != nil && r.over != nil:
		return value, r.over
	case err != nil: // the answer is known here but could not be stored
		r.open = &StepError{Step: at.step, Err: err}
		return value, r.open
	case row != nil:
		return stored[T](ctx, r, at.step, row)
	}
	r.over = &AcceptedError{Step: at.step, Left: later.within}
	return value, r.over
}

// settling returns the error for an operation that waits for its provider.
func settling(row *ledger.Row) error {
	return &AcceptedError{Step: row.Step, Left: time.Duration(row.Left) * time.Microsecond}
}
