package main

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/core"
)

func newOpsCancel(o *opsFlags) *cobra.Command {
	var r refFlags
	var who whoFlags
	cmd := &cobra.Command{
		Use: "cancel", Short: "End an operation that was not executed, before it is", Args: noArgs,
		Long: "End an operation that was not executed. It is rejected then, with the code voided and --reason,\n" +
			"which its callers see.\n\n" +
			"A key that was never used is kept from being used, so that a request that is still on its way\n" +
			"is refused when it comes: look at the key twice. That needs the role of the program. If no\n" +
			"operation has the name yet, give --namespace, even if it is default. If the program hashes its\n" +
			"keys (HashKeys), give the key as its records show it, hmac:..., or cancel in the program: this\n" +
			"command does not know the secret.\n\n" +
			"An operation that waits and has done no step is ended. Whatever was done, or has begun a call\n" +
			"outside, stays as it is: the command says what became of it, and fails. The program's Workflow.Undo\n" +
			"does not run here: what the transaction that began it (StartTx) has written stays. Cancel such an\n" +
			"operation in the program.\n",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ref, err := r.ref()
			if err != nil {
				return err
			}
			return o.operators(cmd, func(ctx context.Context, ops *operators.Operators[*sql.Tx]) error {
				if err := o.checkUnused(ctx, ops, ref); err != nil {
					return err
				}
				outcome, err := ops.Cancel(ctx, ref, who.Actor)
				if err != nil {
					return err
				}
				said := "cancelled"
				if outcome == idempotency.Replayed {
					said = "cancelled before"
				}
				return o.intervened(ctx, cmd, ops, ref, said)
			})
		},
	}
	r.add(cmd)
	who.add(cmd)
	return cmd
}

// hashedKey begins the keys of a program with Options.HashKeys.
const hashedKey = "hmac:"

// checkUnused refuses a key that has no row, if the program surely looks for another one: the command would
// say "cancelled", and the operation would be executed. It reads a bounded number of the rows that have the name.
func (o *opsFlags) checkUnused(ctx context.Context, ops *operators.Operators[*sql.Tx], ref staged.Ref) error {
	if _, err := ops.Show(ctx, ref); !errors.Is(err, staged.ErrNotFound) {
		return err
	}
	filter, seen := operators.Filter{Name: ref.Name}, 0
	for s := idempotency.StateInProgress; s <= idempotency.StateRejectedExpired; s++ {
		filter.States = append(filter.States, s)
	}
	for _, filter.Records = range []bool{false, true} {
		found, err := core.First(maxElsewhere, ops.List(ctx, filter))
		if err != nil {
			return err
		}
		for i := range found {
			if strings.HasPrefix(found[i].Key, hashedKey) && !strings.HasPrefix(ref.Key, hashedKey) {
				return usage("nothing was cancelled: the program hashes its keys, and no operation has this one: give the key as holdfast ops list shows it, %s..., or cancel in the program, which knows the secret (Runner.Cancel, Store.Void)", hashedKey)
			}
		}
		seen += len(found)
	}
	if seen == 0 && o.namespace == "" {
		return usage("nothing was cancelled: the namespace %q has no operation %q at all: give the program's --namespace; if it is this one, --namespace %[1]s", idempotency.DefaultNamespace, ref.Name)
	}
	return nil
}
