package workload

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/bench/internal/locks"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
	"github.com/holdfast-go/holdfast/internal/measure"
)

// Load measures how cost grows with the clients, the held leases and the waiters.
func Load(ctx context.Context, p *Plan) ([]result.Table, error) {
	var tables []result.Table
	for _, grow := range []func(context.Context, *Plan) (result.Table, error){growClients, growLeases, growWaiters} {
		t, err := grow(ctx, p)
		if err != nil {
			return append(tables, t), err
		}
		tables = append(tables, t)
	}
	return tables, nil
}

// growClients measures the throughput over the number of clients, each with separate keys.
func growClients(ctx context.Context, p *Plan) (result.Table, error) {
	t := result.Table{
		Workload: "load", Title: "Throughput over the clients, keys of one's own",
		Columns: []result.Column{
			{Key: "at", Title: "clients"},
			{Key: "per_second", Title: "acquired and released a second", Spread: true},
			{Key: "p50", Title: "p50 µs"},
			{Key: "p99", Title: "p99 µs"},
			{Key: "x", Title: "x its floor (per second)", Spread: true},
		},
		Picture: result.Curve("per_second", "acquired and released a second"),
	}
	for _, e := range p.Engines {
		for _, clients := range []int{1, 2, 4, 8, 16, 32, 64} {
			list, err := p.lockSlicesOf(ctx, group{e.Name, &locks.World{Engine: e}}, locks.Few(e.Name), clients, again, "per_second")
			if err != nil {
				return t, err
			}
			for i := range list {
				n := float64(clients)
				list[i].At, list[i].Values["at"] = n, measure.Spread{Median: n, Min: n, Max: n}
			}
			t.Rows = append(t.Rows, list...)
		}
	}
	return t, nil
}

// growLeases measures the cost of renewal over the number of held leases.
func growLeases(ctx context.Context, p *Plan) (result.Table, error) {
	t := result.Table{
		Workload: "load", Title: "Renewal over the leases held by one process",
		Columns: append([]result.Column{{Key: "at", Title: "leases"}}, leaseColumns...),
		Picture: result.Curve("statements", "statements an interval"),
		Notes:   []string{"The only statement is the renewal of a batch, up to 2048 leases at once."},
	}
	for _, e := range p.Engines {
		for n := 1; n <= p.Leases; n *= 10 {
			few := *p
			few.Rounds = min(p.Rounds, 2) // an interval is long
			row, err := few.leases(ctx, e, n)
			if err != nil {
				return t, fmt.Errorf("%s: %w", e.Name, err)
			}
			row.Values["at"] = measure.Spread{Median: row.At, Min: row.At, Max: row.At}
			if n < 1000 {
				delete(row.Values, "memory") // the fixed cost of the first lease outweighs it
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t, nil
}

// growWaiters makes many clients wait for one key and counts the cost of a hand-over.
func growWaiters(ctx context.Context, p *Plan) (result.Table, error) {
	t := result.Table{
		Workload: "load", Title: "Hand-overs of one key over those who wait for it in one process",
		Columns: []result.Column{
			{Key: "at", Title: "waiters"},
			{Key: "per_second", Title: "hand-overs a second", Spread: true},
			{Key: "statements", Title: "statements a hand-over", Spread: true},
			{Key: "conns", Title: "connections in use at most"},
		},
		Picture: result.Curve("per_second", "hand-overs a second"),
		Notes:   []string{"The statement that bounds it is the hand-over: one UPDATE of the lock's row, with its commit."},
	}
	for _, e := range p.Engines {
		for waiters := 1; waiters <= 10_000; waiters *= 10 {
			n := &entrant{
				row:    result.Row{Group: e.Name, Name: "Holdfast", Kind: "holdfast", At: float64(waiters)},
				engine: e, fixed: figures{"at": float64(waiters)},
				slice: func(ctx context.Context) (figures, error) { return p.waiters(ctx, e, waiters) },
			}
			if err := p.rounds(ctx, fmt.Sprintf("%s, %d waiters", e.Name, waiters), []*entrant{n}); err != nil {
				return t, err
			}
			t.Rows = append(t.Rows, rows([]*entrant{n}, "")...)
		}
	}
	return t, nil
}

// errEnough ends the waiters of a slice.
var errEnough = errors.New("the slice is over")

func (p *Plan) waiters(ctx context.Context, e *sqlengine.Engine, waiters int) (f figures, err error) {
	var statements, granted, conns atomic.Int64
	l, err := locks.Leases(ctx, e, holdfast.Options{SingleOwner: true, Observers: []holdfast.Observer{func(context.Context, holdfast.Statement) {
		statements.Add(1)
		conns.Store(max(conns.Load(), int64(e.Busy())))
	}}})
	if err != nil {
		return nil, err
	}
	var until closers
	until.later(l.Close)
	defer func() { err = errors.Join(err, until.close(ctx)) }()
	key := fmt.Sprintf("wait/%d", run.Add(1))
	first, err := l.Acquire(ctx, 0, key)
	if err != nil {
		return nil, err
	}
	slice, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ended, standing := make(chan error, 1), atomic.Int64{}
	go func() {
		ended <- measure.Each(slice, waiters, func(ctx context.Context, client int) error {
			standing.Add(1)
			for ctx.Err() == nil {
				release, err := l.Acquire(ctx, client, key)
				if err != nil {
					if context.Cause(slice) != nil {
						return nil //nolint:nilerr // it was told to end
					}
					return err
				}
				granted.Add(1)
				if err := release(context.WithoutCancel(ctx)); err != nil {
					return err
				}
			}
			return nil
		})
	}()
	for standing.Load() < int64(waiters) {
		time.Sleep(time.Millisecond)
	}
	begun, said, before := time.Now(), statements.Load(), granted.Load()
	err = first(ctx)
	select {
	case <-time.After(p.Slice):
	case <-ctx.Done():
	}
	took, n := time.Since(begun).Seconds(), float64(granted.Load()-before)
	asked := float64(statements.Load() - said)
	stop(errEnough)
	if err := errors.Join(err, <-ended); err != nil {
		return nil, err
	}
	return figures{"per_second": n / took, "statements": asked / max(1, n), "conns": float64(conns.Load())}, nil
}
