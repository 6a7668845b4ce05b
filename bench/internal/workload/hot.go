package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/locks"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/internal/measure"
)

// hotClients are the client counts of the two tables.
var hotClients = []int{16, 64}

var hotColumns = []result.Column{
	{Key: "changes", Title: "holder changes a second", Spread: true},
	{Key: "x", Title: "x its floor", Spread: true},
	{Key: "processes", Title: "process changes a second", Spread: true},
	{Key: "per_second", Title: "acquisitions a second"},
	{Key: "wait_p50", Title: "wait p50 ms"},
	{Key: "wait_p99", Title: "p99 ms"},
	{Key: "wait_max", Title: "longest ms", Spread: true},
	{Key: "wait_x", Title: "longest ÷ median", Spread: true},
	{Key: "unfair", Title: "most ÷ least of a client"},
	{Key: "trips", Title: "round trips an acquisition"},
}

// Hot measures one key that all clients want.
func Hot(ctx context.Context, p *Plan) ([]result.Table, error) {
	var tables []result.Table
	for _, clients := range p.clients(hotClients) {
		t := result.Table{
			Workload: "hot", Title: "One hot key", Clients: clients, Columns: hotColumns,
			Picture: result.Bars("changes", "holder changes a second"),
			Notes: []string{
				"Who polls often takes its own lock back, so an acquisition is no hand-over: holder changes are counted apart. " +
					"Who never got it in a slice counts as one acquisition in most ÷ least. " +
					"A process is a program of its own with a quarter of the clients. " +
					"For what has no processes, these are the changes between the same quarters. " +
					fmt.Sprintf("A slice lasts %v or longer.", shareLeast),
			},
		}
		for _, g := range p.groups() {
			list, err := p.hotGroup(ctx, g, clients)
			t.Rows = append(t.Rows, list...)
			if err != nil {
				return append(tables, t), err
			}
		}
		tables = append(tables, t)
	}
	return tables, nil
}

func (p *Plan) hotGroup(ctx context.Context, g group, clients int) (list []result.Row, err error) {
	var open closers
	defer func() { err = errors.Join(err, open.close(ctx)) }()
	var entrants []*entrant
	for _, c := range locks.Hot(g.name) {
		e := &entrant{row: result.Row{Group: g.name, Name: c.Name, Kind: string(c.Kind), Against: c.Against}, engine: g.world.Engine}
		take, err := p.take(ctx, g, c, clients, &open)
		if err != nil {
			return nil, err
		}
		if take == nil {
			continue
		}
		e.slice = func(ctx context.Context) (figures, error) {
			all, trips, err := take(ctx, share{Key: fmt.Sprintf("hot/%d", run.Add(1)), Length: max(p.Slice, shareLeast)})
			if err != nil {
				return nil, err
			}
			f, err := hotFigures(all, clients)
			if err == nil && c.Counts {
				f["trips"] = float64(trips) / f["count"]
			}
			return f, err
		}
		entrants = append(entrants, e)
	}
	err = p.rounds(ctx, g.name, entrants)
	return rows(entrants, "changes"), err
}

// takes runs a slice on a key, and returns its turns and its round trips.
type takes func(ctx context.Context, what share) (all []turn, trips int64, err error)

// take opens a competitor in this process, or in as many as it has.
func (p *Plan) take(ctx context.Context, g group, c locks.Competitor, clients int, open *closers) (takes, error) {
	if c.Processes > 0 {
		return p.shared(ctx, g, c, clients, open)
	}
	return p.alone(ctx, g, c, clients, open)
}

func (p *Plan) alone(ctx context.Context, g group, c locks.Competitor, clients int, open *closers) (takes, error) {
	l, err := p.open(ctx, g, c, open)
	if l == nil {
		return nil, err
	}
	return func(ctx context.Context, what share) ([]turn, int64, error) {
		before := g.world.Trips()
		all, err := compete(ctx, l, what, 0, 1, clients)
		return all, g.world.Trips() - before, err
	}, nil
}

// turn is one acquisition of a client. Its times are those of the machine's clock, so the turns of several
// processes have one order. To is before the release, and Freed after it.
type turn struct {
	Client int   `json:"client"`
	Asked  int64 `json:"asked"`
	Got    int64 `json:"got"`
	To     int64 `json:"to"`
	Freed  int64 `json:"freed"`
}

// compete lets clients first, first+step, … take turns on one key.
func compete(ctx context.Context, l *locks.Lock, what share, first, step, clients int) (all []turn, err error) {
	start := time.Now()
	var mu sync.Mutex
	err = measure.Each(ctx, (clients-first+step-1)/step, func(ctx context.Context, n int) error {
		var own []turn
		client := first + n*step
		for time.Since(start) < what.Length {
			t := turn{Client: client, Asked: time.Now().UnixNano()}
			release, err := l.Acquire(ctx, client, what.Key)
			if err != nil {
				return err
			}
			t.Got = time.Now().UnixNano()
			if what.Paced {
				time.Sleep(holdLeast + rand.N(holdMost-holdLeast)) // the time for which it holds the lock
			}
			t.To = time.Now().UnixNano()
			if err := release(ctx); err != nil {
				return err
			}
			t.Freed = time.Now().UnixNano()
			own = append(own, t)
			if what.Paced {
				time.Sleep(rest)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, own...)
		return nil
	})
	return all, err
}

// hotFigures returns the figures of a slice in which clients took turns.
func hotFigures(all []turn, clients int) (figures, error) {
	if len(all) == 0 {
		return nil, errors.New("no client got the lock")
	}
	slices.SortFunc(all, func(a, b turn) int { return cmp.Compare(a.Got, b.Got) })
	won, changes, crossed := make([]int, clients), 0, 0
	waits := make([]time.Duration, 0, len(all))
	began, ended := all[0].Asked, all[0].To
	for i, t := range all {
		began, ended = min(began, t.Asked), max(ended, t.To)
		waits = append(waits, time.Duration(t.Got-t.Asked))
		won[t.Client]++
		if i == 0 {
			continue
		}
		last := all[i-1]
		if t.Got < last.To {
			return nil, errors.New("two clients have the lock")
		}
		if t.Client != last.Client {
			changes++
		}
		if t.Client%locks.Several != last.Client%locks.Several {
			crossed++
		}
	}
	slices.Sort(waits)
	elapsed := time.Duration(ended - began)
	t := measure.Taken{Took: waits, Elapsed: elapsed}
	ms := func(percent int) float64 { return us(t.Percentile(percent)) / 1e3 }
	f := figures{
		"changes": float64(changes) / elapsed.Seconds(), "processes": float64(crossed) / elapsed.Seconds(), "per_second": t.PerSecond(), "count": float64(len(waits)),
		"wait_p50": ms(50), "wait_p99": ms(99), "wait_max": ms(100),
		"unfair": float64(slices.Max(won)) / float64(max(1, slices.Min(won))),
	}
	if median := f["wait_p50"]; median > 0 {
		f["wait_x"] = f["wait_max"] / median
	}
	return f, nil
}
