package workload

import (
	"context"
	"errors"
	"fmt"
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
					"A process is a Locker, or a connection to ZooKeeper, with a quarter of the clients; all are in one program, and share nothing but the server. " +
					"For what has no processes, these are the changes between the same quarters.",
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
		l, err := p.open(ctx, g, c, &open)
		if err != nil {
			return nil, err
		}
		if l == nil {
			continue
		}
		entrants = append(entrants, &entrant{
			row:    result.Row{Group: g.name, Name: c.Name, Kind: string(c.Kind), Against: c.Against},
			engine: g.world.Engine,
			slice: func(ctx context.Context) (figures, error) {
				trips := g.world.Trips()
				h := &hot{lock: l, key: fmt.Sprintf("hot/%d", run.Add(1)), won: make([]int, clients), last: -1}
				f, err := h.slice(ctx, clients, p.Slice)
				if c.Counts && f["count"] > 0 {
					f["trips"] = float64(g.world.Trips()-trips) / f["count"]
				}
				return f, err
			},
		})
	}
	err = p.rounds(ctx, g.name, entrants)
	return rows(entrants, "changes"), err
}

// hot is a slice on one key.
type hot struct {
	lock *locks.Lock
	key  string

	held    sync.Mutex // detects a lock that is granted twice
	won     []int      // by client
	last    int
	changes int
	crossed int // changes between processes

	mu    sync.Mutex
	waits []time.Duration
}

func (h *hot) slice(ctx context.Context, clients int, length time.Duration) (figures, error) {
	start := time.Now()
	err := measure.Each(ctx, clients, func(ctx context.Context, client int) error {
		var waits []time.Duration
		for time.Since(start) < length {
			begin := time.Now()
			release, err := h.lock.Acquire(ctx, client, h.key)
			if err != nil {
				return err
			}
			waits = append(waits, time.Since(begin))
			if !h.held.TryLock() {
				return errors.New("two clients have the lock")
			}
			h.won[client]++
			if h.last != client {
				h.changes++
				if h.last%locks.Several != client%locks.Several {
					h.crossed++
				}
				h.last = client
			}
			h.held.Unlock()
			if err := release(ctx); err != nil {
				return err
			}
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.waits = append(h.waits, waits...)
		return nil
	})
	elapsed := time.Since(start)
	slices.Sort(h.waits)
	t := measure.Taken{Took: h.waits, Elapsed: elapsed}
	ms := func(percent int) float64 { return us(t.Percentile(percent)) / 1e3 }
	f := figures{
		"changes": float64(h.changes) / elapsed.Seconds(), "processes": float64(h.crossed) / elapsed.Seconds(), "per_second": t.PerSecond(), "count": float64(len(h.waits)),
		"wait_p50": ms(50), "wait_p99": ms(99), "wait_max": ms(100),
		"unfair": float64(slices.Max(h.won)) / float64(max(1, slices.Min(h.won))),
	}
	if median := f["wait_p50"]; median > 0 {
		f["wait_x"] = f["wait_max"] / median
	}
	return f, err
}
