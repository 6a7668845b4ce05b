package main

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/reaper"
)

// reaped is one pass of the reaper, in JSON.
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
	Referred int64  `json:"referenced,omitempty"`
	OldestMS int64  `json:"oldest_ms"`
}

func taskOf(t reaper.TaskReport) reapedTask {
	return reapedTask{t.Task, t.Rows, t.Batches, t.Passed, t.Referenced, t.Oldest.Milliseconds()}
}

// reapFlags are the flags of reap.
type reapFlags struct {
	*flags
	reaper.Options
	dry, accept, history bool
	limit                int
	every                time.Duration
	progress             *progress
	tables               []string
	scan                 bool
}

func newReap(f *flags) *cobra.Command {
	r := &reapFlags{flags: f}
	cmd := &cobra.Command{
		Use: "reap", Short: "Clear what has expired: once, or again and again with --every", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if r.watch.every != 0 && !r.history {
				return usage("--watch goes with --history: say --every to clear again and again")
			}
			if r.every != 0 && (r.dry || r.history) {
				return usage("--every goes with neither --dry-run nor --history")
			}
			for _, t := range r.tables {
				spec, err := tableSpec(t)
				if err != nil {
					return err
				}
				spec.Scan = r.scan
				r.Tables = append(r.Tables, spec)
			}
			if r.every == 0 && !r.history { // with --every, each pass prints its own result
				r.progress = f.progress(cmd, "reaping")
			}
			defer r.progress.done()
			return f.with(cmd, func(ctx context.Context, db *holdfast.DB[*sql.Tx]) error {
				if r.history {
					return f.passes(ctx, cmd, db, r.limit)
				}
				return r.run(ctx, cmd, db)
			}, r.progress.counting(".write", "batch")...)
		},
	}
	flags := cmd.Flags()
	r.addWatch(cmd)
	flags.BoolVar(&r.dry, "dry-run", false, "only count what is due")
	flags.DurationVar(&r.every, "every", 0, "go on until interrupted, with so much time between two passes")
	flags.IntVar(&r.Batch, "batch", 0, "rows in one transaction at most (default: 500; SQLite 100)")
	flags.DurationVar(&r.BatchTime, "batch-time", 0, "how long a transaction should take; slower ones make the next smaller (default: 50ms)")
	flags.Int64Var(&r.MaxRows, "max-rows", 0, "rows in one pass at most (default: no bound)")
	flags.Float64Var(&r.Pace, "pace", 0, "rest after a batch, in multiples of its time (default: 1)")
	flags.DurationVar(&r.LockGrace, "lock-grace", 0, "how long free locks keep their rows (default: 1h)")
	flags.StringArrayVar(&r.tables, "table", nil, "a table of your own as well: "+tableForm+"; may be repeated")
	flags.BoolVar(&r.scan, "scan", false, "read the whole of each --table, where no index begins with EXPIRES")
	flags.BoolVar(&r.accept, "accept-clock", false, "go on after the database's clock jumped and was looked at")
	flags.BoolVar(&r.history, "history", false, "show the last passes that cleared or failed something, instead")
	flags.IntVar(&r.limit, "limit", 20, "with --history: how many at most")
	return cmd
}

func (f *reapFlags) run(ctx context.Context, cmd *cobra.Command, db *holdfast.DB[*sql.Tx]) error {
	r, err := reaper.New(ctx, db, f.Options)
	if err != nil {
		return err
	}
	if f.accept {
		if err := r.AcceptClock(ctx); err != nil {
			return err
		}
	}
	if f.every != 0 {
		if f.forPeople() && f.every >= 10*time.Millisecond && f.every <= 7*24*time.Hour { // the first pass may be a quarter of it away
			fmt.Fprintf(cmd.ErrOrStderr(), "holdfast: a pass about every %v, until interrupted\n", f.every)
		}
		err := r.Run(ctx, reaper.RunOptions{Every: f.every, OnPass: func(r reaper.Report, err error) { // each pass is printed when it ends
			_ = f.report(cmd, r, false)
			if err != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), errorLine(err))
			}
		}})
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was told to stop
		}
		return err
	}
	pass := r.Sweep
	if f.dry {
		pass = r.DryRun
	}
	report, err := pass(ctx)
	f.progress.done()
	if err != nil && report.Rows() == 0 {
		return err
	}
	if unsaid := f.report(cmd, report, f.dry); err == nil {
		err = unsaid
	}
	return err // what was done before it is done
}

func (f *flags) report(cmd *cobra.Command, r reaper.Report, dry bool) error {
	out := reaped{DryRun: dry, Rows: r.Rows(), More: r.More, TookMS: r.Duration.Milliseconds(), Tasks: []reapedTask{}}
	rows := [][]string{}
	for _, t := range r.Tasks {
		out.Tasks = append(out.Tasks, taskOf(t))
		rows = append(rows, []string{t.Task, strconv.FormatInt(t.Rows, 10), strconv.FormatInt(t.Passed, 10), duration(t.Oldest)})
	}
	if r.Unrecorded != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), "holdfast: the pass is not in the history: "+withoutPassword(r.Unrecorded.Error()))
	}
	said := fmt.Sprintf("cleared %s in %s\n", rowsOf(out.Rows), duration(r.Duration))
	if dry {
		said = "due: " + rowsOf(out.Rows) + "\n"
	}
	if r.More {
		said += "there may be more: --max-rows ended the pass\n"
	}
	return f.answer(cmd, out, f.table(cmd, "nothing was looked at", "TASK ROWS PASSED OLDEST", rows)+said)
}

// pass is one pass of the history, in JSON.
type pass struct {
	Began  time.Time    `json:"began"`
	Ended  time.Time    `json:"ended"`
	Holder string       `json:"holder"`
	Rows   int64        `json:"rows"`
	More   bool         `json:"more"`
	Tasks  []reapedTask `json:"tasks"`
	Error  string       `json:"error,omitempty"`
}

func (f *flags) passes(ctx context.Context, cmd *cobra.Command, db *holdfast.DB[*sql.Tx], limit int) error {
	if err := checkLimit(limit); err != nil {
		return err
	}
	passes, err := core.First(limit, reaper.History(ctx, db))
	if err != nil {
		return err
	}
	list, rows := []pass{}, [][]string{}
	for _, p := range passes {
		one := pass{p.Began, p.Ended, p.Holder, p.Rows, p.More, []reapedTask{}, p.Error}
		var of []string
		for _, t := range p.Tasks {
			one.Tasks = append(one.Tasks, taskOf(t))
			if t.Rows > 0 {
				of = append(of, text(t.Task)+":"+strconv.FormatInt(t.Rows, 10))
			}
		}
		list = append(list, one)
		rows = append(rows, []string{moment(p.Began), duration(p.Ended.Sub(p.Began)), text(p.Holder), strconv.FormatInt(p.Rows, 10), cmp.Or(strings.Join(of, ","), "-"), text(p.Error)})
	}
	return f.answer(cmd, list, f.table(cmd, "no pass has cleared or failed anything", "BEGAN TOOK HOLDER ROWS CLEARED ERROR", rows))
}
