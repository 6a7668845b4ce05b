// Command bench compares Holdfast with the bare statements on the same driver and
// with other locks, and writes a report.
//
//	make bench
//	make bench ARGS='-workload lock,refund -engines postgres -rounds 9 -slice 2s'
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/bench/internal/servers"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
	"github.com/holdfast-go/holdfast/bench/internal/workload"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		os.Exit(1) //nolint:gocritic // stop is of no use any more
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == workload.HoldArg {
		return workload.Hold(ctx, args[1:])
	}
	if len(args) > 0 && args[0] == workload.ShareArg {
		return workload.Share(ctx, args[1:])
	}
	o, err := parse(args)
	if err != nil {
		return err
	}
	var report *result.Report
	if len(o.merge) > 0 {
		report, err = merged(o.merge)
	} else {
		report, err = measure(ctx, o)
	}
	if err != nil && (report == nil || len(report.Tables) == 0) {
		return err
	}
	err = errors.Join(err, write(report, o.out), report.Markdown(os.Stdout))
	if o.docs != "" && err == nil {
		err = report.Docs(o.docs)
	}
	return err
}

// merged reads the reports and merges those of each flush.
func merged(files []string) (*result.Report, error) {
	var free, disk []*result.Report
	for _, file := range files {
		r, err := result.Read(strings.TrimSpace(file))
		switch {
		case err != nil:
			return nil, err
		case r.Flush == result.Disk:
			disk = append(disk, r)
		default:
			free = append(free, r)
		}
	}
	if len(free) == 0 {
		return result.Merge(disk), nil
	}
	report := result.Merge(free)
	if len(disk) > 0 {
		report.OnDisk = result.Merge(disk)
	}
	return report, nil
}

// measure runs the workloads. With an error it returns what was measured until then.
func measure(ctx context.Context, o *options) (report *result.Report, err error) {
	report = &result.Report{
		Machine: []string{fmt.Sprintf("%s, %d CPUs, %s/%s", runtime.Version(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)},
		Commit:  commit, Began: begun.UTC().Format(time.RFC3339), Rounds: o.rounds, SliceMS: o.slice.Milliseconds(), Flush: o.flush,
	}
	plan := &workload.Plan{Rounds: o.rounds, Slice: o.slice, Clients: o.clients, Leases: o.leases, Reap: o.reap, Grow: o.grow, Log: logf}
	defer func() {
		for _, e := range plan.Engines {
			if err := e.Close(ctx); err != nil {
				logf("%s: %v", e.Name, err)
			}
		}
	}()
	for _, name := range o.engines {
		e, err := sqlengine.Open(ctx, name, o.conns)
		if errors.Is(err, sqlengine.ErrMissing) {
			report.Missing = append(report.Missing, err.Error())
			logf("%v", err)
			continue
		}
		if err != nil {
			return nil, err
		}
		plan.Engines = append(plan.Engines, e)
		if err := workload.Tables(ctx, e); err != nil {
			return nil, err
		}
		report.Servers = append(report.Servers, e.Name+" "+e.Version+from(e.Name))
	}
	if slices.ContainsFunc(o.workloads, func(w workload.Workload) bool { return w.Peers }) {
		if plan.Servers, err = servers.Start(ctx, o.peers, logf); err != nil {
			return nil, err
		}
		defer func() {
			if err := plan.Servers.Stop(); err != nil {
				logf("%v", err)
			}
		}()
		report.Missing = append(report.Missing, plan.Servers.Missing...)
		for _, name := range plan.Servers.Running() {
			report.Servers = append(report.Servers, name+" "+plan.Servers.Versions[name])
		}
	}
	err = workloads(ctx, o, plan, report)
	report.Missing = append(report.Missing, plan.Missing...)
	finish(report)
	return report, err
}

// workloads runs the workloads and adds their tables to the report. One that fails does not keep
// the others from running, and what it has measured until then is kept. Each table is written as
// soon as it is there.
func workloads(ctx context.Context, o *options, plan *workload.Plan, report *result.Report) error {
	var errs []error
	for _, w := range o.workloads {
		logf("%s", w.Name)
		tables, err := w.Run(ctx, plan)
		for _, t := range tables {
			if len(t.Rows) > 0 {
				report.Tables = append(report.Tables, t)
			}
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", w.Name, err)
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			report.Missing = append(report.Missing, "what was to come when this run was interrupted, in "+w.Name)
			break
		}
		if err != nil {
			logf("%v", err)
			report.Missing = append(report.Missing, "what was to come when a workload failed: "+err.Error())
		}
		finish(report)
		if err := write(report, o.out); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	return errors.Join(errs...)
}

// finish sets what follows from the tables, and the time that the run took.
func finish(report *result.Report) {
	report.Aim()
	report.TookS = time.Since(begun).Round(time.Second / 10).Seconds()
}

// commit is the commit of which this program was built; the Makefile sets it.
var commit string

// from returns where a server comes from, if testservers has set it.
func from(engine string) string {
	if how := os.Getenv(strings.TrimSuffix(sqlengine.Variable(engine), "_DSN") + "_FROM"); how != "" {
		return " (" + how + ")"
	}
	return ""
}

// write writes the report into the folder, if there is one.
func write(report *result.Report, dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // it is to be read by all
		return err
	}
	if _, err := report.Pictures(dir); err != nil {
		return err
	}
	if err := report.Write(filepath.Join(dir, "result.json")); err != nil {
		return err
	}
	var text strings.Builder
	if err := report.Markdown(&text); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "RESULTS.md"), []byte(text.String()), 0o644) //nolint:gosec // the same
}

// begun is the start time of this program.
var begun = time.Now()

func logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: %6.1f s: "+format+"\n", append([]any{time.Since(begun).Seconds()}, args...)...)
}
