package main

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/reaper"
)

// reaped is a pass of the reaper, in JSON.
type reaped struct {
	DryRun bool         `json:"dry_run"`
	Rows   int64        `json:"rows"`
	More   bool         `json:"more"`
	TookMS int64        `json:"took_ms"`
	Tasks  []reapedTask `json:"tasks"`
}

type reapedTask struct {
	Task     string `json:"task"`
	Rows     int64  `json:"rows"`
	Batches  int    `json:"batches"`
	Passed   int64  `json:"passed"`
	OldestMS int64  `json:"oldest_ms"`
}

func newReap(f *flags) *cobra.Command {
	var o reaper.Options
	var dry, accept bool
	var every time.Duration
	cmd := &cobra.Command{
		Use: "reap", Short: "Clear what has expired: once, or again and again with --every", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.with(cmd, func(ctx context.Context, db *holdfast.DB[*sql.Tx]) error {
				if every > 0 { // each pass is said when it is over
					o.OnReport = func(r reaper.Report) { _ = f.report(cmd, r, false) }
					o.OnError = func(err error) { fmt.Fprintln(cmd.ErrOrStderr(), "holdfast: "+withoutPassword(err.Error())) }
				}
				r, err := reaper.New(ctx, db, o)
				if err != nil {
					return err
				}
				if accept {
					if err := r.AcceptClock(ctx); err != nil {
						return err
					}
				}
				if every > 0 && !dry {
					return r.Run(ctx, every)
				}
				pass := r.Sweep
				if dry {
					pass = r.DryRun
				}
				report, err := pass(ctx)
				if err != nil {
					return err
				}
				return f.report(cmd, report, dry)
			})
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only count what is due")
	cmd.Flags().DurationVar(&every, "every", 0, "go on until interrupted, with so much time between two passes")
	cmd.Flags().IntVar(&o.Batch, "batch", 0, "rows in one transaction at most (default: 500; SQLite 100)")
	cmd.Flags().Int64Var(&o.MaxRows, "max-rows", 0, "rows in one pass at most (default: no bound)")
	cmd.Flags().Float64Var(&o.Pace, "pace", 0, "rest after a batch, in multiples of its time (default: 1)")
	cmd.Flags().DurationVar(&o.LockGrace, "lock-grace", 0, "how long free locks keep their rows (default: 1h)")
	cmd.Flags().BoolVar(&accept, "accept-clock", false, "go on after the database's clock leapt and was looked at")
	return cmd
}

func (f *flags) report(cmd *cobra.Command, r reaper.Report, dry bool) error {
	out := reaped{DryRun: dry, Rows: r.Rows(), More: r.More, TookMS: r.Duration.Milliseconds(), Tasks: []reapedTask{}}
	rows := [][]string{}
	for _, t := range r.Tasks {
		out.Tasks = append(out.Tasks, reapedTask{t.Task, t.Rows, t.Batches, t.Passed, t.Oldest.Milliseconds()})
		rows = append(rows, []string{t.Task, strconv.FormatInt(t.Rows, 10), strconv.FormatInt(t.Passed, 10), duration(t.Oldest)})
	}
	said := fmt.Sprintf("cleared %d rows in %s\n", out.Rows, duration(r.Duration))
	if dry {
		said = fmt.Sprintf("%d rows are due\n", out.Rows)
	}
	if r.More {
		said += "there may be more: --max-rows ended the pass\n"
	}
	return f.answer(cmd, out, table("nothing was looked at", "TASK ROWS PASSED OLDEST", rows)+said)
}
