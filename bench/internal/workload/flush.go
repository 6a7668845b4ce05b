package workload

import (
	"context"

	"github.com/holdfast-go/holdfast/bench/internal/locks"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/internal/measure"
)

// Flush measures what a commit waits for, beside a statement that waits for nothing.
func Flush(ctx context.Context, p *Plan) ([]result.Table, error) {
	t := result.Table{
		Workload: "flush", Title: "A commit of one row, and a statement", Clients: 1,
		Columns: []result.Column{{Key: "p50", Title: "p50 µs", Spread: true}, {Key: "p99", Title: "p99 µs"}},
		Picture: result.Bars("p50", "µs, p50"),
	}
	for _, e := range p.Engines {
		canary := func(name string, op func(ctx context.Context) error) *entrant {
			return &entrant{
				row: result.Row{Group: e.Name, Name: name, Kind: string(locks.Canary)}, engine: e,
				slice: func(ctx context.Context) (figures, error) {
					taken, err := measure.Slice(ctx, 1, p.Slice, func(ctx context.Context, _ int) error { return op(ctx) })
					return latency(taken), err
				},
			}
		}
		entrants := []*entrant{canary("a statement", e.Ping), canary("a commit of one row", e.Commit)}
		err := p.rounds(ctx, e.Name, entrants)
		t.Rows = append(t.Rows, rows(entrants, "")...)
		if err != nil {
			return []result.Table{t}, err
		}
	}
	return []result.Table{t}, nil
}
