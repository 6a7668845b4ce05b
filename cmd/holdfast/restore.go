package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
)

func newAfterRestore(f *flags) *cobra.Command {
	var o idempotency.RestoreOptions
	var yes bool
	cmd := &cobra.Command{
		Use: "after-restore", Short: "Make a database safe that was restored to an earlier point; see docs/after-restore.md", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !yes {
				return errors.New("after-restore ends every lock and parks every pending operation, and is for a database that no program works on: if that is so, add --yes")
			}
			pool, err := f.open()
			if err != nil {
				return err
			}
			defer func() { _ = pool.Close() }()
			db, err := holdfastsql.Open(cmd.Context(), pool, holdfast.WithPrefix(f.prefix), holdfast.WithSchema(f.schema))
			if err != nil {
				return err
			}
			done, err := idempotency.AfterRestore(cmd.Context(), db, o)
			if err != nil {
				return err
			}
			return f.answer(cmd, struct {
				Floor  int64 `json:"floor"`
				Locks  int64 `json:"locks"`
				Claims int64 `json:"claims"`
				Parked int   `json:"parked"`
			}(done), fmt.Sprintf("floor %d; %d locks raised, %d places in lines cleared, %d operations parked\n", done.Floor, done.Locks, done.Claims, done.Parked))
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "yes, no program works on this database")
	cmd.Flags().StringVar(&o.By, "by", "", "who does it; recorded with each operation")
	cmd.Flags().StringVar(&o.Reason, "reason", "", "why; recorded with each operation")
	cmd.Flags().DurationVar(&o.Margin, "margin", time.Minute, "how far the clocks of the old and the new server may be apart")
	return cmd
}
