package workload

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/bench/internal/locks"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
	"github.com/holdfast-go/holdfast/internal/measure"
)

const (
	// ownKeys is the number of keys that each client uses again and again, like a service with
	// recurring orders and accounts.
	ownKeys = 64
	// counted is the number of operations over which statements are counted.
	counted = 64
)

var lockColumns = []result.Column{
	{Key: "p50", Title: "p50 µs", Spread: true},
	{Key: "p99", Title: "p99 µs"},
	{Key: "per_second", Title: "per second"},
	{Key: "x", Title: "x its floor (p50)", Spread: true},
	{Key: "statements", Title: "statements"},
	{Key: "trips", Title: "round trips"},
}

// Lock measures an acquire and a release by one client without contention, on known keys and
// on new keys.
func Lock(ctx context.Context, p *Plan) ([]result.Table, error) {
	var tables []result.Table
	for _, w := range []struct {
		title string
		keys  func(client int) func() string
	}{
		{"Acquire and release, keys that come back", again},
		{"Acquire and release, a new key each time", anew},
	} {
		t := result.Table{Workload: "lock", Title: w.title, Clients: 1, Columns: lockColumns, Picture: result.Bars("p50", "µs, p50")}
		for _, g := range p.groups() {
			list, err := p.lockSlices(ctx, g, 1, w.keys, "p50")
			t.Rows = append(t.Rows, list...)
			if err != nil {
				return append(tables, t), err
			}
		}
		tables = append(tables, t)
	}
	return tables, nil
}

// distinctClients are the client counts of the tables of the throughput.
var distinctClients = []int{4, 8, 16, 64}

// Distinct measures the throughput of many clients, each with separate keys.
func Distinct(ctx context.Context, p *Plan) (tables []result.Table, err error) {
	columns := append([]result.Column{}, lockColumns...)
	columns[3].Title = "x its floor (per second)"
	for _, clients := range p.clients(distinctClients) {
		t := result.Table{Workload: "distinct", Title: "Throughput on keys of one's own", Clients: clients, Columns: columns, Picture: result.Bars("per_second", "a second")}
		for _, g := range p.groups() {
			list, err := p.lockSlices(ctx, g, clients, again, "per_second")
			t.Rows = append(t.Rows, list...)
			if err != nil {
				return append(tables, t), err
			}
		}
		tables = append(tables, t)
	}
	return tables, nil
}

// Pair measures an acquire and a release under Holdfast and in bare statements, in turns, so
// other load on the machine affects both.
func Pair(ctx context.Context, p *Plan) ([]result.Table, error) {
	var tables []result.Table
	for _, w := range []struct {
		title string
		keys  func(client int) func() string
	}{
		{"Acquire and release against the two bare statements, in turns, keys that come back", again},
		{"Acquire and release against the two bare statements, in turns, a new key each time", anew},
	} {
		t := result.Table{Workload: "pair", Title: w.title, Clients: 1, Columns: pairColumns, Picture: result.Bars("x", "times its floor")}
		for _, e := range p.Engines {
			list, err := p.lockPairs(ctx, e, w.keys, turns)
			t.Rows = append(t.Rows, list...)
			if err != nil {
				return append(tables, t), err
			}
		}
		tables = append(tables, t)
	}
	return tables, nil
}

func (p *Plan) lockPairs(ctx context.Context, e *sqlengine.Engine, keys func(int) func() string, compare comparison) (list []result.Row, err error) {
	var open closers
	defer func() { err = errors.Join(err, open.close(ctx)) }()
	byName := map[string]locks.Competitor{}
	for _, c := range locks.Alone(e.Name) {
		byName[c.Name] = c
	}
	var entrants []*entrant
	for _, pair := range locks.Pairs(e.Name) {
		n := &entrant{
			row:    result.Row{Group: e.Name, Name: pair[0] + " ÷ " + pair[1], Kind: string(byName[pair[0]].Kind), Against: pair[1]},
			engine: e, fixed: figures{},
		}
		if pair[0] == pair[1] {
			n.row.Kind = "control"
		}
		ops := make([]measure.Op, len(pair))
		for i, name := range pair {
			world := &locks.World{Engine: e, Servers: p.Servers}
			l, err := byName[name].Open(ctx, world)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", e.Name, name, err)
			}
			open.later(l.Close)
			f, err := countLock(ctx, world, byName[name])
			if err != nil {
				return nil, fmt.Errorf("%s, %s: counting: %w", e.Name, name, err)
			}
			for key, v := range f {
				n.fixed[[]string{"", "floor_"}[i]+key] = v
			}
			run.Add(1) // the two sides of the control have separate keys
			ops[i] = takeAndGive(l, 1, keys)
		}
		n.slice = func(ctx context.Context) (figures, error) { return compare(ctx, 1, p.Slice, ops) }
		entrants = append(entrants, n)
	}
	err = p.rounds(ctx, e.Name, entrants)
	return rows(entrants, ""), err
}

// lockSlices measures the competitors of one group.
func (p *Plan) lockSlices(ctx context.Context, g group, clients int, keys func(int) func() string, ratio string) ([]result.Row, error) {
	return p.lockSlicesOf(ctx, g, locks.Alone(g.name), clients, keys, ratio)
}

func (p *Plan) lockSlicesOf(ctx context.Context, g group, compared []locks.Competitor, clients int, keys func(int) func() string, ratio string) (list []result.Row, err error) {
	var open closers
	defer func() { err = errors.Join(err, open.close(ctx)) }()
	var entrants []*entrant
	for _, c := range compared {
		l, err := p.open(ctx, g, c, &open)
		if err != nil {
			return nil, err
		}
		if l == nil {
			continue
		}
		fixed, err := countLock(ctx, g.world, c)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: counting: %w", g.name, c.Name, err)
		}
		run.Add(1) // separate keys
		op := takeAndGive(l, clients, keys)
		entrants = append(entrants, &entrant{
			row:    result.Row{Group: g.name, Name: c.Name, Kind: string(c.Kind), Against: c.Against},
			engine: g.world.Engine, fixed: fixed,
			slice: func(ctx context.Context) (figures, error) {
				t, err := measure.Slice(ctx, clients, p.Slice, op)
				return latency(t), err
			},
		})
	}
	err = p.rounds(ctx, g.name, entrants)
	return rows(entrants, ratio), err
}

// takeAndGive acquires and releases on separate keys for each client.
func takeAndGive(l *locks.Lock, clients int, keys func(client int) func() string) measure.Op {
	next := make([]func() string, clients)
	for i := range next {
		next[i] = keys(i)
	}
	return func(ctx context.Context, client int) error {
		release, err := l.Acquire(ctx, client, next[client]())
		if err != nil {
			return err
		}
		return release(ctx)
	}
}

// run distinguishes the keys of one use from those of the next.
var run atomic.Int64

func again(client int) func() string {
	keys := make([]string, ownKeys)
	for i := range keys {
		keys[i] = fmt.Sprintf("order/%d/%d/%d", run.Load(), client, i)
	}
	n := 0
	return func() string { n++; return keys[n%ownKeys] }
}

func anew(client int) func() string {
	use, n := run.Add(1), 0
	return func() string { n++; return fmt.Sprintf("order/%d/%d/%d", use, client, n) }
}

// countLock counts the statements and round trips of an acquire and a release.
func countLock(ctx context.Context, w *locks.World, c locks.Competitor) (f figures, err error) {
	var statements atomic.Int64
	seeing := *w
	if c.Kind == locks.Ours {
		seeing.Observe = func(context.Context, holdfast.Statement) { statements.Add(1) }
	}
	l, err := c.Open(ctx, &seeing)
	if err != nil {
		return nil, err
	}
	defer func() {
		if l.Close != nil {
			err = errors.Join(err, l.Close(ctx))
		}
	}()
	op := takeAndGive(l, 1, again)
	for range 2 * ownKeys { // so that every key exists and every statement is prepared
		if err := op(ctx, 0); err != nil {
			return nil, err
		}
	}
	said, trips := statements.Load(), w.Trips()
	for range counted {
		if err := op(ctx, 0); err != nil {
			return nil, err
		}
	}
	f = figures{"statements": c.Statements}
	if c.Kind == locks.Ours {
		f["statements"] = float64(statements.Load()-said) / counted
	}
	if t := w.Trips(); t > trips {
		f["trips"] = float64(t-trips) / counted
	}
	return f, nil
}
