// Package workload measures: each workload opens those who are compared, lets
// them take turns, and tells what came out.
package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/bench/internal/servers"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
	"github.com/holdfast-go/holdfast/internal/measure"
)

// Plan is what a run is to do.
type Plan struct {
	Engines []*sqlengine.Engine
	Servers *servers.Set
	Rounds  int
	Slice   time.Duration
	// Reap is how many rows the reaper's workload fills in, Grow how many the
	// growth's goes up to.
	Reap, Grow int
	Leases     int
	// Clients, where it is above 0, is how many clients there are instead of
	// each of a workload's own numbers.
	Clients int
	// Missing are those who could not be had.
	Missing []string
	// Log tells what is being done.
	Log func(format string, args ...any)
}

// Workload is one comparison.
type Workload struct {
	Name string
	Run  func(ctx context.Context, p *Plan) ([]result.Table, error)
	// Peers: it takes the other servers too.
	Peers bool
}

// figures are those of one slice.
type figures map[string]float64

// clients are the numbers of clients that a workload is run with.
func (p *Plan) clients(own []int) []int {
	if p.Clients > 0 {
		return []int{p.Clients}
	}
	return own
}

// entrant is one who takes turns.
type entrant struct {
	row    result.Row
	engine *sqlengine.Engine // nil where it is none
	slice  func(ctx context.Context) (figures, error)
	fixed  figures // what does not change with the rounds

	rounds []figures
}

// warmUp is the part of a slice that everybody has before the first round.
const warmUp = 4

// rounds has each entrant do a slice a round, in an order that is another one
// each time.
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

// turn is one slice, which must leave no connection behind.
func (e *entrant) turn(ctx context.Context) (figures, error) {
	f, err := e.slice(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", e.row.Group, e.row.Name, err)
	}
	if e.engine == nil {
		return f, nil
	}
	for end := time.Now().Add(5 * time.Second); e.engine.Busy() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return nil, fmt.Errorf("%s, %s: %d connections were not given back", e.row.Group, e.row.Name, e.engine.Busy())
		}
	}
	return f, nil
}

// rows are the entrants' rows; ratio is the figure that is compared within each
// round, as "x".
func rows(entrants []*entrant, ratio string) []result.Row {
	list := make([]result.Row, 0, len(entrants))
	for _, e := range entrants {
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

// closers end what was opened, the last one first.
type closers []func(ctx context.Context) error

// later has f called at the end; nil is nothing to do.
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

// closeTimeout bounds the end of those who were compared, interrupted or not.
const closeTimeout = 30 * time.Second

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// latency are the figures of a slice that all workloads have.
func latency(t measure.Taken) figures {
	return figures{
		"p50": us(t.Percentile(50)), "p99": us(t.Percentile(99)), "mean": us(t.Mean()),
		"per_second": t.PerSecond(), "count": float64(len(t.Took)),
	}
}
