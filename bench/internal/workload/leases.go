package workload

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
	"github.com/holdfast-go/holdfast/internal/measure"
	"github.com/holdfast-go/holdfast/sqllock"
)

const (
	// leaseTTL makes leases renew every 5 s: after a third of it.
	leaseTTL      = 15 * time.Second
	leaseInterval = leaseTTL / 3
	// leaseClients acquire the leases that are then held.
	leaseClients = 32
)

var leaseColumns = []result.Column{
	{Key: "statements", Title: "statements an interval", Spread: true},
	{Key: "memory", Title: "memory of a lease, bytes"},
	{Key: "goroutines", Title: "goroutines"},
	{Key: "lost", Title: "lost"},
	{Key: "acquire", Title: "to acquire all, s"},
}

// Leases holds many leases in one process and counts the renewal statements.
func Leases(ctx context.Context, p *Plan) ([]result.Table, error) {
	t := result.Table{
		Workload: "leases", Title: fmt.Sprintf("%d leases held by one process", p.Leases), Columns: leaseColumns,
		Picture: result.Bars("statements", "statements an interval"),
		Notes: []string{fmt.Sprintf("TTL %v, so an interval is %v. A heartbeat of its own for each lease, as in pglock or an etcd session, is %d statements an interval.",
			leaseTTL, leaseInterval, p.Leases)},
	}
	for _, e := range p.Engines {
		row, err := p.leases(ctx, e, p.Leases)
		if err != nil {
			return []result.Table{t}, fmt.Errorf("%s: %w", e.Name, err)
		}
		t.Rows = append(t.Rows, row)
	}
	return []result.Table{t}, nil
}

// leases holds n leases on one engine.
func (p *Plan) leases(ctx context.Context, e *sqlengine.Engine, n int) (row result.Row, err error) {
	var statements atomic.Int64
	db, err := holdfastsql.Open(ctx, e.SQL, holdfast.Options{SingleOwner: true, Observers: []holdfast.Observer{func(_ context.Context, _ holdfast.Statement) { statements.Add(1) }}})
	if err != nil {
		return row, err
	}
	locker, err := sqllock.New(ctx, db, sqllock.Options{TTL: leaseTTL})
	if err != nil {
		return row, err
	}
	var open closers
	open.later(locker.Close)
	defer func() { err = errors.Join(err, open.close(ctx)) }()

	p.Log("%s: acquiring %d leases", e.Name, n)
	held := make([]*sqllock.Lease, n)
	before, goroutines := heap(), runtime.NumGoroutine()
	begun, use := time.Now(), run.Add(1)
	var next atomic.Int64
	if err := measure.Each(ctx, min(n, leaseClients), func(ctx context.Context, _ int) error {
		for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
			l, err := locker.Acquire(ctx, fmt.Sprintf("lease/%d/%d", use, i))
			if err != nil {
				return err
			}
			held[i] = l
		}
		return nil
	}); err != nil {
		return row, err
	}
	took := time.Since(begun)
	memory := float64(heap()-before) / float64(n)
	more := runtime.NumGoroutine() - goroutines

	var perInterval []float64
	for round := range p.Rounds {
		p.Log("%s: interval %d of %d", e.Name, round+1, p.Rounds)
		at := statements.Load()
		select {
		case <-time.After(leaseInterval): // the measured interval
		case <-ctx.Done():
			return row, context.Cause(ctx)
		}
		perInterval = append(perInterval, float64(statements.Load()-at))
	}
	lost := 0
	for _, l := range held {
		if l.Context().Err() != nil {
			lost++
		}
	}
	same := func(v float64) measure.Spread { return measure.Spread{Median: v, Min: v, Max: v} }
	row = result.Row{Group: e.Name, Name: "Holdfast", Kind: "holdfast", At: float64(n), Values: map[string]measure.Spread{
		"statements": measure.Over(perInterval), "memory": same(max(0, memory)), "goroutines": same(float64(max(0, more))),
		"lost": same(float64(lost)), "acquire": same(took.Seconds()),
	}}
	return row, releaseAll(ctx, held)
}

// releaseAll releases the leases, several at a time.
func releaseAll(ctx context.Context, held []*sqllock.Lease) error {
	var next atomic.Int64
	var mu sync.Mutex
	var errs error
	err := measure.Each(ctx, min(len(held), leaseClients), func(ctx context.Context, _ int) error {
		for i := next.Add(1) - 1; i < int64(len(held)); i = next.Add(1) - 1 {
			if err := held[i].Release(ctx); err != nil && !errors.Is(err, sqllock.ErrLost) {
				mu.Lock()
				errs = errors.Join(errs, err)
				mu.Unlock()
				return err
			}
		}
		return nil
	})
	return errors.Join(err, errs)
}

// heap returns the memory in use after two collections.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse) //nolint:gosec // far from the end
}
