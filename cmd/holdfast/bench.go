package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/doctor"
)

// Bounds of a bench.
const (
	defaultBench = 10 * time.Second
	minBench     = time.Second
	maxBench     = 5 * time.Minute
	maxClients   = 256
)

// measured is the result for one operation of a bench, in JSON. Times are those of one client.
type measured struct {
	What      string  `json:"what"`
	Count     int     `json:"count"`
	P50US     float64 `json:"p50_us"`
	P95US     float64 `json:"p95_us"`
	P99US     float64 `json:"p99_us"`
	PerSecond float64 `json:"per_second"`
	// Ratio is the median divided by the median of Against, and AddedUS their difference.
	Ratio   float64 `json:"ratio,omitempty"`
	AddedUS float64 `json:"added_us,omitempty"`
	Against string  `json:"against,omitempty"`
}

type benched struct {
	Engine   string     `json:"engine"`
	Version  string     `json:"version"`
	Clients  int        `json:"clients"`
	Flush    string     `json:"flush"` // what a commit waits for, by the server's settings
	TookMS   int64      `json:"took_ms"`
	Measured []measured `json:"measured"`
	Notes    []string   `json:"notes"`
}

func newBench(f *flags) *cobra.Command {
	var duration time.Duration
	var clients int
	var clean bool
	cmd := &cobra.Command{
		Use: "bench", Short: "Measure Holdfast on this database, beside the bare statements; briefly, in tables of its own", Args: noArgs,
		Long: "Measure Holdfast on this database, from this machine, beside the same work in bare statements on the same driver:\n" +
			"the refund of docs/why/performance.md, with Holdfast's connector (the form to use) and without it, and a lease.\n" +
			"The slices of all measurements alternate. The tables are named PREFIXbench_…: bench makes them, refuses to begin when\n" +
			"there are any, and drops them at the end. It writes as fast as the database lets it: think before you run it on one\n" +
			"that others work on.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case duration < minBench || duration > maxBench:
				return usage("--duration is not between %v and %v", minBench, maxBench)
			case clients < 1 || clients > maxClients:
				return usage("--clients is not between 1 and %d", maxClients)
			}
			own := *f
			own.prefix += "bench_"
			pool, err := own.open()
			if err != nil {
				return err
			}
			defer func() { _ = pool.Close() }()
			ctx := cmd.Context()
			tables, err := openBench(ctx, &own, pool, clients)
			if err != nil {
				return err
			}
			defer tables.close()
			if clean {
				if err := tables.clean(ctx); err != nil {
					return err
				}
				return f.answer(cmd, struct {
					Cleaned bool `json:"cleaned"`
				}{true}, "the bench's tables are dropped\n")
			}
			p := f.progress(cmd, "bench")
			defer p.done()
			result, err := runBench(ctx, tables, duration, clients, p)
			p.done()
			if err != nil {
				return err
			}
			return f.answer(cmd, result, result.text(func(none, header string, rows [][]string) string { return f.table(cmd, none, header, rows) }))
		},
	}
	cmd.Flags().DurationVar(&duration, "duration", defaultBench, fmt.Sprintf("for how long to measure, in all: %v to %v", minBench, maxBench))
	cmd.Flags().IntVar(&clients, "clients", 1, fmt.Sprintf("how many work at the same time: 1 to %d", maxClients))
	cmd.Flags().BoolVar(&clean, "clean", false, "measure nothing: drop what a bench that was killed left behind")
	return cmd
}

// runBench measures in its own tables and drops them before it returns, interrupted or not.
func runBench(ctx context.Context, tables *benchTables, duration time.Duration, clients int, p *progress) (result *benched, err error) {
	p.sayf("making its tables")
	if err := tables.create(ctx); err != nil {
		return nil, err
	}
	defer func() {
		p.sayf("dropping its tables")
		if e := tables.drop(ctx); e != nil {
			err = errors.Join(err, fmt.Errorf("drop the bench's tables (do it with holdfast bench --clean): %w", e))
		}
	}()
	db := tables.db
	result = &benched{Engine: string(db.Engine()), Version: db.Version(), Clients: clients, Notes: append([]string{}, tables.notes...)}
	// Results with commits that do not wait for the disk cannot be compared with others.
	found, err := doctor.Check(ctx, db)
	if err != nil {
		return nil, err
	}
	for _, x := range found {
		if x.Severity == doctor.Broken {
			result.Notes = append(result.Notes, x.Check+": "+x.Problem)
		}
	}
	if result.Flush, err = tables.flush(ctx); err != nil {
		return nil, err
	}
	b, err := newBencher(ctx, tables, clients)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	err = b.run(ctx, duration, p)
	if err := errors.Join(err, b.close(ctx)); err != nil {
		return nil, err
	}
	result.TookMS = time.Since(start).Milliseconds()
	result.Measured = b.results()
	for _, m := range result.Measured {
		if m.Count < enough {
			result.Notes = append(result.Notes, fmt.Sprintf("%s: %d times are few: give more --duration", m.What, m.Count))
		}
	}
	return result, nil
}

func (r *benched) text(table func(none, header string, rows [][]string) string) string {
	var rows [][]string
	us := func(n float64) string {
		return strconv.FormatFloat(n/1000, 'f', 3, 64)
	}
	for _, m := range r.Measured {
		compared := "-"
		if m.Against != "" {
			compared = fmt.Sprintf("%.2f x %s, %+.0f us", m.Ratio, m.Against, m.AddedUS)
		}
		rows = append(rows, []string{
			m.What, strconv.Itoa(m.Count), us(m.P50US), us(m.P95US), us(m.P99US), strconv.FormatFloat(m.PerSecond, 'f', 0, 64), compared,
		})
	}
	said := fmt.Sprintf("%s, %d at a time, %s; flush: %s\n", r.Engine+" "+text(r.Version), r.Clients, duration(time.Duration(r.TookMS)*time.Millisecond), text(r.Flush)) +
		table("", "WHAT TIMES P50_MS P95_MS P99_MS PER_SECOND COMPARED", rows)
	var notes strings.Builder
	for _, n := range r.Notes {
		notes.WriteString("note: " + n + "\n")
	}
	return said + notes.String()
}
