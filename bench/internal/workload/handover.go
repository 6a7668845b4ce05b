package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/locks"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/internal/measure"
)

// A holder keeps the lock for a random time in this range while another client waits for it:
// long enough for the waiter to be in the queue, and never in step with a waiter's polls.
const (
	holdLeast = 15 * time.Millisecond
	holdMost  = 30 * time.Millisecond
)

// HandOver measures the time from a release to the grant to the waiter.
func HandOver(ctx context.Context, p *Plan) ([]result.Table, error) {
	t := result.Table{
		Workload: "handover", Title: "Hand-over from one client to one that waits", Clients: 2,
		Columns: []result.Column{
			{Key: "p50", Title: "release to grant, p50 µs", Spread: true},
			{Key: "p99", Title: "p99 µs"},
			{Key: "after", Title: "after the release returned, p50 µs"},
			{Key: "x", Title: "x by hand", Spread: true},
			{Key: "count", Title: "hand-overs a round"},
		},
		Picture: result.Bars("p50", "µs from release to grant, p50"),
		Notes: []string{fmt.Sprintf("The lock is held for %v to %v each time, so that commits and round trips are those of a server that is idle in between: "+
			"the canaries of each server are taken at the same pace. A process is a Locker, or a connection of its own, in one program.", holdLeast, holdMost)},
	}
	for _, g := range p.groups() {
		list, err := p.handOvers(ctx, g)
		t.Rows = append(t.Rows, list...)
		if err != nil {
			return []result.Table{t}, err
		}
	}
	return []result.Table{t}, nil
}

func (p *Plan) handOvers(ctx context.Context, g group) (list []result.Row, err error) {
	var open closers
	defer func() { err = errors.Join(err, open.close(ctx)) }()
	entrants := p.paced(g)
	for _, c := range locks.Handed(g.name) {
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
				return handOvers(ctx, l, fmt.Sprintf("handover/%d", run.Add(1)), p.Slice)
			},
		})
	}
	err = p.rounds(ctx, g.name, entrants)
	return rows(entrants, "p50"), err
}

// handOvers passes a lock between two clients.
func handOvers(ctx context.Context, l *locks.Lock, key string, length time.Duration) (figures, error) {
	type granted struct {
		release locks.Release
		at      time.Time
		err     error
	}
	release, err := l.Acquire(ctx, 0, key)
	if err != nil {
		return nil, err
	}
	var all, after []time.Duration
	start := time.Now()
	for client := 1; len(all) == 0 || time.Since(start) < length; client = 1 - client {
		next := make(chan granted, 1)
		go func() {
			release, err := l.Acquire(ctx, client, key)
			next <- granted{release, time.Now(), err}
		}()
		time.Sleep(holdLeast + rand.N(holdMost-holdLeast)) // the time for which it holds the lock
		begin := time.Now()
		err := release(ctx)
		returned := time.Now()
		g := <-next // also after an error, so that no goroutine is left
		if err := errors.Join(err, g.err); err != nil {
			return nil, err
		}
		all, after = append(all, g.at.Sub(begin)), append(after, max(0, g.at.Sub(returned)))
		release = g.release
	}
	elapsed := time.Since(start)
	slices.Sort(all)
	slices.Sort(after)
	f := latency(measure.Taken{Took: all, Elapsed: elapsed})
	later := measure.Taken{Took: after}
	f["after"] = us(later.Percentile(50))
	return f, release(ctx)
}

// paced measures a round trip and a commit at the pace of the hand-overs.
func (p *Plan) paced(g group) []*entrant {
	e := g.world.Engine
	if e == nil {
		return nil
	}
	canary := func(name string, op func(ctx context.Context) error) *entrant {
		return &entrant{
			row: result.Row{Group: g.name, Name: name, Kind: string(locks.Canary)}, engine: e,
			slice: func(ctx context.Context) (figures, error) {
				var took []time.Duration
				for start := time.Now(); len(took) == 0 || time.Since(start) < p.Slice/2; {
					time.Sleep(holdLeast) // the pace
					begin := time.Now()
					if err := op(ctx); err != nil {
						return nil, err
					}
					took = append(took, time.Since(begin))
				}
				slices.Sort(took)
				f := latency(measure.Taken{Took: took})
				delete(f, "per_second")
				return f, nil
			},
		}
	}
	return []*entrant{canary("round trip, paced", e.Ping), canary("commit of one row, paced", e.Commit)}
}
