package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency/operators"
)

func newAfterRestore(f *flags) *cobra.Command {
	var who holdfast.Actor
	var o operators.RestoreOptions
	var yes bool
	cmd := &cobra.Command{
		Use: "after-restore", Short: "Make a database safe that was restored to an earlier point, or is a clone; see docs/howto/after-restore.md", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !yes {
				return usage("after-restore ends every lock and parks every pending operation, and is for a database that no program works on: if that is so, add --yes")
			}
			p := f.progress(cmd, "after-restore")
			defer p.done()
			return f.with(cmd, func(ctx context.Context, db *holdfast.DB[*sql.Tx]) error {
				done, err := operators.AfterRestore(ctx, db, who, o)
				p.done()
				if err != nil {
					return err
				}
				return f.answer(cmd, struct {
					Floor   int64 `json:"floor"`
					Locks   int64 `json:"locks"`
					Tickets int64 `json:"tickets"`
					Parked  int   `json:"parked"`
				}(done), fmt.Sprintf("floor %d; %d locks raised, %d places in lines cleared, %d operations parked\n", done.Floor, done.Locks, done.Tickets, done.Parked))
			}, p.counting("", "statement")...)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "yes, no program works on this database")
	cmd.Flags().StringVar(&who.By, "by", "", "who does it; recorded with each operation")
	cmd.Flags().StringVar(&who.Reason, "reason", "", "why; recorded with each operation")
	cmd.Flags().DurationVar(&o.Margin, "margin", time.Minute, "how far the clocks of the old and the new server may be apart")
	return cmd
}
