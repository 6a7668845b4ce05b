package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/core"
)

// unsure refuses a resolution that --yes has not confirmed, and says what it would do. token is the flag that binds it to
// what was seen, if the command has one.
func (o *opsFlags) unsure(ctx context.Context, ops *operators.Operators[*sql.Tx], ref staged.Ref, as, token string) error {
	op, err := ops.Show(ctx, ref)
	if err != nil {
		return err
	}
	if op.State != idempotency.StateUnknown || !slices.Contains(operators.Choices(op), as) {
		return nil // Resolve says why it is not possible
	}
	lines := []string{fmt.Sprintf("nothing was done yet. --as %s of %s %s, which is %s, does this:", as, text(op.Name), text(op.Key), op.State)}
	for _, effect := range operators.Effects(as) {
		lines = append(lines, "  "+effect)
	}
	lines = append(lines, facts(op)...)
	if as == operators.AsSucceeded || as == operators.AsRejected {
		reserved, err := core.First(maxReserved, ops.Reserved(ctx, op))
		if err != nil {
			return err
		}
		for _, r := range reserved {
			lines = append(lines, fmt.Sprintf("  It stays reserved: %d of the limit %s of %s (reservation %s, made while the operation ran).", r.Amount, text(r.Limit), text(r.Name), text(r.ID)))
		}
		if slices.Contains(operators.Choices(op), operators.AsStepRejected) && as == operators.AsRejected {
			lines = append(lines, "  To let the operation's own function compensate, use --as step-rejected.")
		}
	}
	add := "if that is right, add --yes"
	if token != "" {
		add += fmt.Sprintf(" %s %d", token, op.Token) // what is unknown may go on and be unknown again until then
	}
	return usage("%s", strings.Join(append(lines, add), "\n"))
}

// facts says what an operation has done.
func facts(op *staged.Operation) (lines []string) {
	for _, s := range op.Steps {
		switch s.State {
		case staged.Succeeded:
			lines = append(lines, fmt.Sprintf("  The step %s was done, and stays done.", text(s.Name)))
		case staged.Begun, staged.Settling:
			lines = append(lines, fmt.Sprintf("  The step %s is %s: provider key %s.", text(s.Name), s.State, text(s.ProviderKey)))
		}
	}
	if op.Contradicted {
		lines = append(lines, "  Its provider has contradicted itself: "+text(op.Reason))
	}
	return lines
}

// maxReserved is how many reservations a warning names.
const maxReserved = 100

// unsureOf does for a proposal what unsure does for a resolution.
func (o *opsFlags) unsureOf(ctx context.Context, ops *operators.Operators[*sql.Tx], id []byte) error {
	for p, err := range ops.Proposals(ctx) {
		switch {
		case err != nil:
			return err
		case !bytes.Equal(p.ID, id):
		case p.Lock != nil:
			return usage("%s: if that is right, add --yes", releases)
		case operators.Hazardous(p.Resolution.As()):
			return o.unsure(ctx, ops, *p.Operation, p.Resolution.As(), "")
		}
	}
	return nil // Confirm says what it is
}
