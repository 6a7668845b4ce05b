package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/bench/internal/locks"
	"github.com/holdfast-go/holdfast/bench/internal/refunds"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
	"github.com/holdfast-go/holdfast/internal/measure"
	"github.com/holdfast-go/holdfast/migrations"
)

// Growth measures how cost grows with the rows of the tables.
func Growth(ctx context.Context, p *Plan) ([]result.Table, error) {
	t, err := growRows(ctx, p)
	return []result.Table{t}, err
}

// sizes returns the table sizes, up to the plan's maximum.
func sizes(most int) []int {
	return slices.DeleteFunc([]int{1, 1000, 100_000, 1_000_000, 10_000_000}, func(n int) bool { return n > most })
}

const (
	bigPrefix   = "big_"
	smallPrefix = "small_"
)

// growRows works in turns on growing tables and on small ones. The ratio is the cost of the
// rows and does not depend on other load on the machine.
func growRows(ctx context.Context, p *Plan) (result.Table, error) {
	t := result.Table{
		Workload: "growth", Title: "Cost over the rows of the tables, in turns with tables that are nearly empty", Clients: 1,
		Columns: []result.Column{
			{Key: "at", Title: "rows"},
			{Key: "x", Title: "ratio of p50 to small tables", Spread: true},
			{Key: "p50", Title: "p50 µs"},
			{Key: "p99", Title: "p99 µs"},
			{Key: "statements", Title: "statements"},
		},
		Picture: result.Curve("x", "times the cost with small tables (p50)"),
	}
	for _, e := range p.Engines {
		if err := p.growEngine(ctx, e, &t); err != nil {
			return t, fmt.Errorf("%s: %w", e.Name, err)
		}
	}
	return t, nil
}

func (p *Plan) growEngine(ctx context.Context, e *sqlengine.Engine, t *result.Table) error {
	for _, prefix := range []string{bigPrefix, smallPrefix} {
		if err := migrations.Up(ctx, e.SQL, holdfast.Options{SingleOwner: true, Prefix: prefix}); err != nil {
			return err
		}
	}
	costs := newCosts()
	rowsNow := 0
	for _, n := range sizes(p.Grow) {
		if err := e.FillLocks(ctx, bigPrefix, rowsNow, n, p.filling(e.Name+": locks", n)); err != nil {
			return err
		}
		if err := e.FillRecords(ctx, bigPrefix, rowsNow, n, false, p.filling(e.Name+": records", n)); err != nil {
			return err
		}
		rowsNow = n
		if err := e.Analyze(ctx, bigPrefix+"locks", bigPrefix+"records"); err != nil {
			return err
		}
		list, err := p.growSize(ctx, e, n, costs)
		if err != nil {
			return err
		}
		t.Rows = append(t.Rows, list...)
	}
	t.Notes = append(t.Notes, fmt.Sprintf("%s: of the time at %d rows, %s.", e.Name, rowsNow, costs.most()))
	return nil
}

// growSize measures the operations on tables of n rows.
func (p *Plan) growSize(ctx context.Context, e *sqlengine.Engine, n int, c *costs) (list []result.Row, err error) {
	var until closers
	defer func() { err = errors.Join(err, until.close(ctx)) }()
	among := func(int) func() string { return func() string { return sqlengine.FilledKey(rand.IntN(n)) } }
	var entrants []*entrant
	for _, w := range []struct {
		name string
		op   func(prefix string, observe holdfast.Observer) (measure.Op, error)
	}{
		{"acquire and release, a row that is there", func(prefix string, o holdfast.Observer) (measure.Op, error) {
			return leaseOp(ctx, e, prefix, o, among, &until)
		}},
		{"acquire and release, a new row", func(prefix string, o holdfast.Observer) (measure.Op, error) {
			return leaseOp(ctx, e, prefix, o, anew, &until)
		}},
		{"refund under Do", func(prefix string, o holdfast.Observer) (measure.Op, error) {
			do, err := refunds.Ours(ctx, e, holdfast.Options{SingleOwner: true, Prefix: prefix, Observers: []holdfast.Observer{o}})
			return newKeys(1, false).op(do), err
		}},
		{"replay", func(prefix string, o holdfast.Observer) (measure.Op, error) {
			do, err := refunds.Ours(ctx, e, holdfast.Options{SingleOwner: true, Prefix: prefix, Observers: []holdfast.Observer{o}})
			if err != nil {
				return nil, err
			}
			k := newKeys(1, true)
			return k.op(do), k.make(ctx, do)
		}},
	} {
		big, err := w.op(bigPrefix, nil)
		if err != nil {
			return nil, err
		}
		small, err := w.op(smallPrefix, nil)
		if err != nil {
			return nil, err
		}
		seen, err := w.op(bigPrefix, c.see)
		if err != nil {
			return nil, err
		}
		c.reset()
		if err := times(counted, func() error { return seen(ctx, 0) }); err != nil {
			return nil, err
		}
		entrants = append(entrants, &entrant{
			row:    result.Row{Group: e.Name, Name: w.name, Kind: "holdfast", At: float64(n)},
			engine: e, fixed: figures{"at": float64(n), "statements": float64(c.statements()) / counted},
			slice: func(ctx context.Context) (figures, error) { return turns(ctx, 1, p.Slice, []measure.Op{big, small}) },
		})
	}
	if err := p.rounds(ctx, fmt.Sprintf("%s, %d rows", e.Name, n), entrants); err != nil {
		return nil, err
	}
	return rows(entrants, ""), nil
}

func leaseOp(ctx context.Context, e *sqlengine.Engine, prefix string, o holdfast.Observer, keys func(int) func() string, until *closers) (measure.Op, error) {
	l, err := locks.Leases(ctx, e, holdfast.Options{SingleOwner: true, Prefix: prefix, Observers: []holdfast.Observer{o}})
	if err != nil {
		return nil, err
	}
	until.later(l.Close)
	return takeAndGive(l, 1, keys), nil
}

// costs holds the times that statements took, by name.
type costs struct {
	mu   sync.Mutex
	took map[string]time.Duration
	all  map[string]time.Duration
	n    int
}

func newCosts() *costs {
	return &costs{took: map[string]time.Duration{}, all: map[string]time.Duration{}}
}

func (c *costs) see(_ context.Context, s holdfast.Statement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := s.Name
	if name == "" {
		name = s.Command
	}
	c.took[name] += s.Duration
	c.n++
}

// reset starts another operation.
func (c *costs) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took, c.n = map[string]time.Duration{}, 0
}

func (c *costs) statements() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, d := range c.took {
		c.all[name] += d
	}
	return c.n
}

// most names the statements that took most of the time.
func (c *costs) most() string {
	var sum time.Duration
	var names []string
	for name, d := range c.all {
		sum += d
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return int(c.all[b] - c.all[a]) })
	var parts []string
	for _, name := range names[:min(3, len(names))] {
		parts = append(parts, fmt.Sprintf("%s took %.0f %%", name, 100*float64(c.all[name])/float64(sum)))
	}
	return strings.Join(parts, ", ")
}
