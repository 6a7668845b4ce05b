package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/bench/internal/locks"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
	"github.com/holdfast-go/holdfast/internal/measure"
	"github.com/holdfast-go/holdfast/reaper"
)

// reapClients acquire and release while rows are cleared.
const reapClients = 4

var reapColumns = []result.Column{
	{Key: "x", Title: "p99 beside it ÷ quiet", Spread: true},
	{Key: "x_p50", Title: "p50 beside it ÷ quiet", Spread: true},
	{Key: "quiet_p99", Title: "p99 quiet µs"},
	{Key: "beside_p99", Title: "p99 beside it µs"},
	{Key: "stall", Title: "longest beside it ms"},
	{Key: "rows", Title: "rows a second while it works"},
}

// Reap clears expired records while other clients acquire and release leases. Windows without
// and with the reaper alternate until everything is cleared.
func Reap(ctx context.Context, p *Plan) ([]result.Table, error) {
	t := result.Table{
		Workload: "reap", Title: fmt.Sprintf("Clearing %d expired records beside leases that come and go", p.Reap), Clients: reapClients,
		Columns: reapColumns, Picture: result.Bars("x", "p99 beside it ÷ quiet"),
		Notes: []string{"Each client acquires and releases a lease every few milliseconds. Windows last as long as a slice."},
	}
	for _, e := range p.Engines {
		for _, c := range []struct {
			name, kind string
			clearer    func(ctx context.Context, e *sqlengine.Engine) (clearer, error)
		}{
			{"Holdfast's reaper", "holdfast", ourReaper},
			{"bare DELETE, 1000 rows at a time, no rest", "floor", bareDelete},
		} {
			row, err := p.reap(ctx, e, c.clearer)
			if err != nil {
				return []result.Table{t}, fmt.Errorf("%s, %s: %w", e.Name, c.name, err)
			}
			row.Group, row.Name, row.Kind = e.Name, c.name, c.kind
			t.Rows = append(t.Rows, row)
		}
	}
	return []result.Table{t}, nil
}

// clearer clears rows until ctx ends or nothing is left.
type clearer func(ctx context.Context) (rows int64, done bool, err error)

func ourReaper(ctx context.Context, e *sqlengine.Engine) (clearer, error) {
	db, err := holdfastsql.Open(ctx, e.SQL, holdfast.Options{SingleOwner: true})
	if err != nil {
		return nil, err
	}
	r, err := reaper.New(ctx, db)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (int64, bool, error) {
		report, err := r.Sweep(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			return report.Rows(), false, nil
		}
		return report.Rows(), true, err
	}, nil
}

func bareDelete(_ context.Context, e *sqlengine.Engine) (clearer, error) {
	const due = ` FROM holdfast_records WHERE key_expires_at <= `
	text := map[string]string{
		sqlengine.Postgres: `DELETE FROM holdfast_records WHERE ctid = ANY (ARRAY(SELECT ctid` + due + `(date_part('epoch', now()) * 1000000)::bigint ORDER BY key_expires_at LIMIT 1000 FOR UPDATE SKIP LOCKED))`,
		sqlengine.SQLite:   `DELETE FROM holdfast_records WHERE (owner, key_hash) IN (SELECT owner, key_hash` + due + `CAST(unixepoch('subsec') * 1000000 AS INTEGER) ORDER BY key_expires_at LIMIT 1000)`,
	}[e.Name]
	if text == "" {
		text = `DELETE` + due + `CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED) ORDER BY key_expires_at LIMIT 1000`
	}
	return func(ctx context.Context) (rows int64, done bool, err error) {
		for ctx.Err() == nil {
			// A running batch is not cancelled, because its cost is measured.
			r, err := e.SQL.ExecContext(context.WithoutCancel(ctx), text)
			if err != nil {
				return rows, false, err
			}
			n, err := r.RowsAffected()
			if err != nil || n == 0 {
				return rows, true, err
			}
			rows += n
		}
		return rows, false, nil
	}, nil
}

// besides holds the times of the foreground, without and with the reaper.
type besides struct {
	under atomic.Bool
	mu    sync.Mutex
	took  [2][]time.Duration
}

// take returns and resets the times of a window.
func (b *besides) take(at int) measure.Taken {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := measure.Taken{Took: b.took[at]}
	b.took[at] = nil
	slices.Sort(t.Took)
	return t
}

// run acquires and releases until ctx ends.
func (b *besides) run(ctx context.Context, op measure.Op) error {
	err := measure.Each(ctx, reapClients, func(ctx context.Context, client int) error {
		for ctx.Err() == nil {
			under, begun := b.under.Load(), time.Now()
			if err := op(ctx, client); err != nil {
				return err
			}
			if took := time.Since(begun); under == b.under.Load() {
				at := 0
				if under {
					at = 1
				}
				b.mu.Lock()
				b.took[at] = append(b.took[at], took)
				b.mu.Unlock()
			}
			time.Sleep(2 * time.Millisecond) // the pace of the foreground
		}
		return nil
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // it was told to end
	}
	return err
}

// enoughTimes is the number of times needed for a p99.
const enoughTimes = 100

func (p *Plan) reap(ctx context.Context, e *sqlengine.Engine, open func(context.Context, *sqlengine.Engine) (clearer, error)) (row result.Row, err error) {
	if err := e.FillRecords(ctx, "holdfast_", 0, p.Reap, true, p.filling(e.Name+": expired records", p.Reap)); err != nil {
		return row, err
	}
	if err := e.Analyze(ctx, "holdfast_records"); err != nil {
		return row, err
	}
	clears, err := open(ctx, e)
	if err != nil {
		return row, err
	}
	l, err := locks.Leases(ctx, e, holdfast.Options{SingleOwner: true})
	if err != nil {
		return row, err
	}
	var until closers
	until.later(l.Close)
	defer func() { err = errors.Join(err, until.close(ctx)) }()
	run.Add(1)
	b, foreground := &besides{}, make(chan error, 1)
	running, stop := context.WithCancel(ctx)
	go func() { foreground <- b.run(running, takeAndGive(l, reapClients, again)) }()
	until.later(func(context.Context) error { stop(); return <-foreground })

	time.Sleep(p.Slice) // to warm up
	var windows [5][]float64
	var cleared int64
	var worked time.Duration
	for done := false; !done && ctx.Err() == nil; {
		b.take(0)
		time.Sleep(p.Slice) // a window without the reaper
		quiet := b.take(0)
		b.under.Store(true)
		window, cancel := context.WithTimeout(ctx, p.Slice)
		begun := time.Now()
		var n int64
		n, done, err = clears(window)
		took := time.Since(begun)
		cancel()
		b.under.Store(false)
		beside := b.take(1)
		if err != nil {
			return row, err
		}
		cleared, worked = cleared+n, worked+took
		p.Log("%s: %d of %d cleared", e.Name, cleared, p.Reap)
		if len(quiet.Took) >= enoughTimes && len(beside.Took) >= enoughTimes || done && windows[0] == nil && len(beside.Took) > 0 {
			for i, v := range []float64{
				us(beside.Percentile(99)) / us(quiet.Percentile(99)), us(beside.Percentile(50)) / us(quiet.Percentile(50)),
				us(quiet.Percentile(99)), us(beside.Percentile(99)), us(beside.Percentile(100)) / 1e3,
			} {
				windows[i] = append(windows[i], v)
			}
		}
	}
	if cleared < int64(p.Reap) && ctx.Err() == nil {
		return row, fmt.Errorf("cleared %d of %d", cleared, p.Reap)
	}
	rate := float64(cleared) / worked.Seconds()
	row.Values = map[string]measure.Spread{"rows": {Median: rate, Min: rate, Max: rate}}
	for i, key := range []string{"x", "x_p50", "quiet_p99", "beside_p99", "stall"} {
		if len(windows[i]) > 0 {
			row.Values[key] = measure.Over(windows[i])
		}
	}
	row.Note = fmt.Sprintf("%d windows", len(windows[0]))
	return row, ctx.Err()
}

// filling logs its progress from time to time.
func (p *Plan) filling(what string, of int) func(done int) {
	var last time.Time
	return func(done int) {
		if time.Since(last) > 5*time.Second {
			last = time.Now()
			p.Log("%s: %d of %d are made", what, done, of)
		}
	}
}
