package operators_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// TestConfirmedTooLate lets a proposal end, or be confirmed by another person, after Confirm has read it: nothing
// happens twice, and nothing after the end.
func TestConfirmedTooLate(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		var do atomic.Pointer[func()]
		pool := e.Open(e.DSN, holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
			if strings.HasSuffix(s.Name, "proposals.read") {
				if f := do.Swap(nil); f != nil {
					(*f)()
				}
			}
		}}})
		s, err := idempotency.New(e.Ctx, access.WithOwners(e.DB, core.ManyOwners))
		e.Check(err)
		watched, err := idempotency.New(e.Ctx, access.WithOwners(pool.DB, core.ManyOwners))
		e.Check(err)
		ops := operators.New(s)
		for what, end := range map[string]string{
			"its end":              `UPDATE holdfast_proposals SET expires_at = 1`,
			"another confirmation": `DELETE FROM holdfast_proposals`,
		} {
			ref, _ := parkedIn(e, s, what)
			p, err := ops.Propose(e.Ctx, ref, operators.Resolution{Step: staged.StepDone, StepResult: "bank 7"}, olga)
			e.Check(err)
			late := func() { e.Must(end) }
			do.Store(&late)
			if err := operators.New(watched).Confirm(e.Ctx, p.ID, "ben"); !errors.Is(err, operators.ErrNoProposal) {
				e.Errorf("confirmed after %s: %v", what, err)
			}
			if op, err := ops.Show(e.Ctx, ref); err != nil || op.State != idempotency.StateUnknown {
				e.Errorf("after %s: %+v, %v", what, op, err)
			}
		}
	})
}
