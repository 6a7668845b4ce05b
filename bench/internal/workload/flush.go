package workload

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/locks"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
	"github.com/holdfast-go/holdfast/internal/measure"
)

// Flush measures what a commit waits for, beside a round trip that waits for nothing.
func Flush(ctx context.Context, p *Plan) ([]result.Table, error) {
	t := result.Table{
		Workload: "flush", Title: "A commit of one row, and a round trip", Clients: 1,
		Columns: []result.Column{{Key: "p50", Title: "p50 µs", Spread: true}, {Key: "p99", Title: "p99 µs"}},
		Picture: result.Bars("p50", "µs, p50"),
	}
	for _, e := range p.Engines {
		entrants := p.canaries(e, "", 0)
		err := p.rounds(ctx, e.Name, entrants)
		t.Rows = append(t.Rows, rows(entrants, "")...)
		if err != nil {
			return []result.Table{t}, err
		}
	}
	return []result.Table{t}, nil
}

// canaries measure a round trip and a commit, with a pause before each.
func (p *Plan) canaries(e *sqlengine.Engine, suffix string, pause time.Duration) []*entrant {
	canary := func(name string, op func(ctx context.Context) error) *entrant {
		return &entrant{
			row: result.Row{Group: e.Name, Name: name + suffix, Kind: string(locks.Canary)}, engine: e,
			slice: func(ctx context.Context) (figures, error) {
				var took []time.Duration
				for start := time.Now(); len(took) == 0 || time.Since(start) < p.Slice/2; {
					time.Sleep(pause)
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
	return []*entrant{canary("round trip", e.Ping), canary("commit of one row", e.Commit)}
}
