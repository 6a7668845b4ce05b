package staged

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/core"
)

// outside refuses the context of a function that runs within a transaction. It recognises the
// functions of Do and DoTx by the keys in their context.
func (s *Runner[Req, Res, Tx]) outside(ctx context.Context) error {
	within := core.IsWithin(ctx) || s.transitions.store.InFunction(ctx)
	if within {
		return &InTxError{Operation: s.workflow.Name}
	}
	return nil
}
