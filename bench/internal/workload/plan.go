// Package workload measures. Each workload opens the competitors, runs them in turns, and
// returns tables of the results.
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
	"github.com/holdfast-go/holdfast/bench/internal/servers"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
	"github.com/holdfast-go/holdfast/internal/measure"
)

// Plan holds the parameters of a run.
type Plan struct {
	Engines []*sqlengine.Engine
	Servers *servers.Set
	Rounds  int
	Slice   time.Duration
	// Reap is the number of rows that the reaper's workload inserts, and Grow the largest table
	// of the growth workload.
	Reap, Grow int
	Leases     int
	// Clients, if above 0, replaces each workload's own numbers of clients.
	Clients int
	// Missing lists the competitors that were not available.
	Missing []string
	// Log reports progress.
	Log func(format string, args ...any)
}

// Workload is one comparison.
type Workload struct {
	Name string
	// Run returns, with an error, what it has measured until then.
	Run func(ctx context.Context, p *Plan) ([]result.Table, error)
	// Peers is set if the workload runs on the other servers too.
	Peers bool
}

// figures are the figures of one slice.
type figures map[string]float64

// clients returns the numbers of clients with which a workload runs.
func (p *Plan) clients(own []int) []int {
	if p.Clients > 0 {
		return []int{p.Clients}
	}
	return own
}

// entrant is a competitor that takes turns.
type entrant struct {
	row    result.Row
	engine *sqlengine.Engine // nil if it does not run on one
	slice  func(ctx context.Context) (figures, error)
	fixed  figures // figures that do not change with the rounds

	rounds []figures
}

// warmUp divides the length of a slice: each entrant runs such a part before the first round.
const warmUp = 4

// rounds runs one slice of each entrant in each round, in a random order.
func (p *Plan) rounds(ctx context.Context, what string, entrants []*entrant) error {
	length := p.Slice
	p.Slice /= warmUp
	for _, e := range entrants {
		if _, err := e.turn(ctx); err != nil {
			return fmt.Errorf("%s: warming up: %w", what, err)
		}
	}
	p.Slice = length
	for round := range p.Rounds {
		p.Log("%s: round %d of %d", what, round+1, p.Rounds)
		for _, i := range rand.Perm(len(entrants)) {
			f, err := entrants[i].turn(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			entrants[i].rounds = append(entrants[i].rounds, f)
		}
	}
	return nil
}

// sideConnections is how many connections the competitors' processes may keep for waking each
// other: two each, of leases and of Fair in one process and in several.
const sideConnections = 2 * 2 * (1 + locks.Several)

// turn runs one slice, which must return all its connections but those.
func (e *entrant) turn(ctx context.Context) (figures, error) {
	f, err := e.slice(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", e.row.Group, e.row.Name, err)
	}
	if e.engine == nil {
		return f, nil
	}
	for end := time.Now().Add(5 * time.Second); e.engine.Busy() > sideConnections; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return nil, fmt.Errorf("%s, %s: %d connections were not given back", e.row.Group, e.row.Name, e.engine.Busy())
		}
	}
	return f, nil
}

// rows returns the entrants' rows; ratio is the figure that is compared within each round, as
// "x".
func rows(entrants []*entrant, ratio string) []result.Row {
	list := make([]result.Row, 0, len(entrants))
	for _, e := range entrants {
		if len(e.rounds) == 0 {
			continue // the run was interrupted
		}
		e.row.Values = map[string]measure.Spread{}
		for key, v := range e.fixed {
			e.row.Values[key] = measure.Spread{Median: v, Min: v, Max: v}
		}
		byKey := map[string][]float64{}
		for _, f := range e.rounds {
			for key, v := range f {
				byKey[key] = append(byKey[key], v)
			}
		}
		for key, v := range byKey {
			e.row.Values[key] = measure.Over(v)
		}
		if base := find(entrants, e.row.Group, e.row.Against); base != nil {
			e.row.Values["x"] = over(e.rounds, base.rounds, ratio)
		}
		list = append(list, e.row)
	}
	return list
}

func find(entrants []*entrant, group, name string) *entrant {
	for _, e := range entrants {
		if e.row.Group == group && e.row.Name == name {
			return e
		}
	}
	return nil
}

// over compares a figure round by round.
func over(these, those []figures, key string) measure.Spread {
	var x []float64
	for i := range min(len(these), len(those)) {
		if base := those[i][key]; base > 0 {
			x = append(x, these[i][key]/base)
		}
	}
	return measure.Over(x)
}

// closers close what was opened, in reverse order.
type closers []func(ctx context.Context) error

// later registers f to be called at the end; nil does nothing.
func (c *closers) later(f func(ctx context.Context) error) {
	if f != nil {
		*c = append(*c, f)
	}
}

func (c *closers) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	var errs []error
	for _, f := range slices.Backward(*c) {
		errs = append(errs, f(ctx))
	}
	*c = nil
	return errors.Join(errs...)
}

// closeTimeout bounds the closing of the competitors, interrupted or not.
const closeTimeout = 30 * time.Second

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// latency returns the figures of a slice that all workloads have.
func latency(t measure.Taken) figures {
	return figures{
		"p50": us(t.Percentile(50)), "p99": us(t.Percentile(99)), "mean": us(t.Mean()),
		"per_second": t.PerSecond(), "count": float64(len(t.Took)),
	}
}
