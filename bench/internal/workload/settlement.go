package workload

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/bench/internal/settle"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
	"github.com/holdfast-go/holdfast/internal/measure"
)

// Settlement feeds the lines of a settlement file, first new ones and then the same ones
// again, in turns with the bare statements.
func Settlement(ctx context.Context, p *Plan) ([]result.Table, error) {
	t := result.Table{
		Workload: "settlement", Title: fmt.Sprintf("A settlement file, %d lines a transaction, in turns", settle.Lines), Clients: 1,
		Columns: []result.Column{
			{Key: "x", Title: "ratio of p50", Spread: true},
			{Key: "x_mean", Title: "ratio of means", Spread: true},
			{Key: "p50", Title: "p50 µs"},
			{Key: "floor_p50", Title: "its floor's"},
			{Key: "lines", Title: "lines a second"},
			{Key: "statements", Title: "statements"},
			{Key: "trips", Title: "round trips"},
			{Key: "floor_trips", Title: "its floor's"},
		},
		Picture: result.Bars("x", "times its floor"),
		Notes: []string{"The floor is one INSERT that passes over the lines that are there, followed by one SELECT that compares these. " +
			"On MySQL and MariaDB it relies on the driver's count of changed rows; Holdfast works with clientFoundRows too."},
	}
	for _, e := range p.Engines {
		list, err := p.settlement(ctx, e)
		t.Rows = append(t.Rows, list...)
		if err != nil {
			return []result.Table{t}, fmt.Errorf("%s: %w", e.Name, err)
		}
	}
	return []result.Table{t}, nil
}

func (p *Plan) settlement(ctx context.Context, e *sqlengine.Engine) ([]result.Row, error) {
	ours, err := settle.Ours(ctx, e, nil)
	if err != nil {
		return nil, err
	}
	bare := settle.Bare(e)
	var entrants []*entrant
	for _, again := range []bool{false, true} {
		name := "ClaimAllTx ÷ bare INSERT, new lines"
		if again {
			name = "ClaimAllTx ÷ bare INSERT and SELECT, the same lines again"
		}
		fixed, err := countFeeds(ctx, e, again)
		if err != nil {
			return nil, err
		}
		ops := []measure.Op{feedOp(ours, again), feedOp(bare, again)}
		entrants = append(entrants, &entrant{
			row:    result.Row{Group: e.Name, Name: name, Kind: "holdfast"},
			engine: e, fixed: fixed,
			slice: func(ctx context.Context) (figures, error) {
				f, err := turns(ctx, 1, p.Slice, ops)
				f["lines"] = settle.Lines * 1e6 / f["mean"]
				return f, err
			},
		})
	}
	err = p.rounds(ctx, e.Name, entrants)
	return rows(entrants, ""), err
}

// feedOp feeds a batch: a new one each time, or always the same.
func feedOp(feed settle.Feed, again bool) measure.Op {
	file, page := run.Add(1), 0
	batch := func() []settle.Line {
		lines := make([]settle.Line, settle.Lines)
		for i := range lines {
			lines[i] = settle.Line{No: fmt.Sprintf("%d-%06d-%04d", file, page, i), Merchant: "m" + strconv.Itoa(i%7), Cents: int64(100 + i)}
		}
		return lines
	}
	fed := false
	return func(ctx context.Context, _ int) error {
		want := settle.Lines
		if again && fed {
			want = 0
		}
		if !again {
			page++
		}
		n, err := feed(ctx, batch())
		if err == nil && n != want {
			err = fmt.Errorf("%d lines were new, not %d", n, want)
		}
		fed = true
		return err
	}
}

func countFeeds(ctx context.Context, e *sqlengine.Engine, again bool) (figures, error) {
	const feeds = 4
	var said atomic.Int64
	ours, err := settle.Ours(ctx, e, func(context.Context, holdfast.Statement) { said.Add(1) })
	if err != nil {
		return nil, err
	}
	f := figures{}
	for _, x := range []struct {
		trips string
		op    measure.Op
	}{{"trips", feedOp(ours, again)}, {"floor_trips", feedOp(settle.Bare(e), again)}} {
		err := times(2, func() error { return x.op(ctx, 0) })
		begun, trips := said.Load(), e.Trips()
		if err := errors.Join(err, times(feeds, func() error { return x.op(ctx, 0) })); err != nil {
			return nil, err
		}
		if x.trips == "trips" {
			f["statements"] = float64(said.Load()-begun) / feeds
		}
		if e.Wire != nil {
			f[x.trips] = float64(e.Trips()-trips) / feeds
		}
	}
	return f, nil
}
