package main

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
)

func newOpsResume(o *opsFlags) *cobra.Command {
	var filter operators.Filter
	var who whoFlags
	var options operators.ResumeOptions
	var after string
	var yes bool
	cmd := &cobra.Command{
		Use: "resume", Short: "Go on with many operations that are parked at no step, such as after an outage", Args: noArgs,
		Long: "Go on with operations whose attempts were used up, such as while a database or a provider\n" +
			"was down. Without --yes it only lists which. Those that somebody has to look at are not\n" +
			"resumed: the outcome of a call is unknown, the provider has contradicted itself, or the\n" +
			"database was restored. See holdfast ops resolve.",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if filter.After.ID, err = hex.DecodeString(after); err != nil {
				return usage("--after is the id of an operation, as holdfast ops list -json has it")
			}
			options.DryRun = !yes
			return o.operators(cmd, func(ctx context.Context, ops *operators.Operators[*sql.Tx]) error {
				done, err := ops.ResumeAll(ctx, filter, who.Actor, options)
				if err != nil {
					return fmt.Errorf("%d operations were resumed, then: %w", len(done.Operations), err)
				}
				return o.resumed(cmd, done, yes)
			})
		},
	}
	who.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&filter.Owner, "owner", "", "only the operations of this owner")
	flags.StringVar(&filter.Name, "name", "", "only operations of this name")
	flags.StringVar(&options.Because, "because", "", "only those whose reason, as holdfast ops list shows it, contains this text")
	flags.IntVar(&options.Limit, "limit", 100, "how many unknown operations it looks at")
	flags.StringVar(&after, "after", "", "go on behind the one with this id")
	flags.BoolVar(&yes, "yes", false, "yes, resume them")
	return cmd
}

func (o *opsFlags) resumed(cmd *cobra.Command, done operators.Resumed, yes bool) error {
	out := struct {
		Done    bool        `json:"done"`
		Resumed []operation `json:"resumed"`
		Skipped []operation `json:"skipped"`
		After   string      `json:"after,omitempty"`
	}{yes, []operation{}, []operation{}, hex.EncodeToString(done.After.ID)}
	word := map[bool]string{true: "resumed", false: "would be resumed"}[yes]
	rows := [][]string{}
	add := func(op *staged.Operation, what string) {
		rows = append(rows, []string{text(op.Owner), text(op.Name), text(op.Key), what, text(op.Step), text(op.Reason)})
	}
	for i := range done.Operations {
		out.Resumed = append(out.Resumed, operationOf(&done.Operations[i]))
		add(&done.Operations[i], word)
	}
	for i := range done.Skipped {
		out.Skipped = append(out.Skipped, operationOf(&done.Skipped[i]))
		add(&done.Skipped[i], "skipped: resolve it")
	}
	said := o.table(cmd, "no unknown operations", "OWNER NAME KEY THIS STEP REASON", rows)
	if !yes && len(done.Operations) > 0 {
		said += "nothing was done: add --yes\n"
	}
	if out.After != "" {
		said += "there may be more: --after " + out.After + "\n"
	}
	return o.answer(cmd, out, said)
}
