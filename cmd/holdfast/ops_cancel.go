package main

import (
	"context"
	"database/sql"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
)

func newOpsCancel(o *opsFlags) *cobra.Command {
	var r refFlags
	var who whoFlags
	cmd := &cobra.Command{
		Use: "cancel", Short: "End an operation that was not executed, before it is", Args: noArgs,
		Long: "End an operation that was not executed. It is rejected then, with the code voided and --reason,\n" +
			"which its callers see.\n\n" +
			"A key that was never used is kept from being used, so that a request that is still on its way\n" +
			"is refused when it comes: look at the key twice. That needs the role of the program. An operation\n" +
			"that waits and has done no step is ended. Whatever was done, or has begun a call outside, stays as\n" +
			"it is: the command says what became of it, and fails.\n",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ref, err := r.ref()
			if err != nil {
				return err
			}
			return o.operators(cmd, func(ctx context.Context, ops *operators.Operators[*sql.Tx]) error {
				outcome, err := ops.Cancel(ctx, ref, who.Actor)
				if err != nil {
					return err
				}
				op, err := ops.Show(ctx, ref)
				if err != nil {
					return err
				}
				said := "cancelled\n"
				if outcome == idempotency.Replayed {
					said = "cancelled before\n"
				}
				return o.answer(cmd, operationOf(op), said)
			})
		},
	}
	r.add(cmd)
	who.add(cmd)
	return cmd
}
