package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/locks"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/internal/measure"
)

// A holder keeps the lock for a random time in this range while another client waits for it:
// long enough for the waiter to be in the queue, and never in step with a waiter's polls. Then it rests until the
// other has the lock.
const (
	rest = 8 * time.Millisecond

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
			"the canaries of each server are taken at the same pace. A process is a program of its own. A slice lasts %v or longer.", holdLeast, holdMost, shareLeast)},
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
	var entrants []*entrant
	if e := g.world.Engine; e != nil {
		entrants = p.canaries(e, ", paced", holdLeast)
	}
	for _, c := range locks.Handed(g.name) {
		take, err := p.take(ctx, g, c, 2, &open)
		if err != nil {
			return nil, err
		}
		if take == nil {
			continue
		}
		entrants = append(entrants, &entrant{
			row:    result.Row{Group: g.name, Name: c.Name, Kind: string(c.Kind), Against: c.Against},
			engine: g.world.Engine,
			slice:  func(ctx context.Context) (figures, error) { return p.handedOver(ctx, take) },
		})
	}
	err = p.rounds(ctx, g.name, entrants)
	return rows(entrants, "p50"), err
}

// handedOver passes a lock between two clients.
func (p *Plan) handedOver(ctx context.Context, take takes) (figures, error) {
	length := max(p.Slice, shareLeast)
	turns, _, err := take(ctx, share{Key: fmt.Sprintf("handover/%d", run.Add(1)), Length: length, Paced: true})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(turns, func(a, b turn) int { return cmp.Compare(a.Got, b.Got) })
	var all, after []time.Duration
	for i := 1; i < len(turns); i++ {
		if t, last := turns[i], turns[i-1]; t.Client != last.Client && t.Asked < last.To { // it waited
			all, after = append(all, time.Duration(t.Got-last.To)), append(after, time.Duration(max(0, t.Got-last.Freed)))
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no client waited for another")
	}
	slices.Sort(all)
	slices.Sort(after)
	f := latency(measure.Taken{Took: all, Elapsed: length})
	later := measure.Taken{Took: after}
	f["after"] = us(later.Percentile(50))
	return f, nil
}
