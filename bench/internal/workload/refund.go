package workload

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/bench/internal/refunds"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
	"github.com/holdfast-go/holdfast/internal/measure"
)

var pairColumns = []result.Column{
	{Key: "x", Title: "ratio of p50", Spread: true},
	{Key: "x_mean", Title: "ratio of means", Spread: true},
	{Key: "p50", Title: "p50 µs"},
	{Key: "floor_p50", Title: "its floor's"},
	{Key: "p99", Title: "p99 µs"},
	{Key: "floor_p99", Title: "its floor's"},
	{Key: "statements", Title: "statements"},
	{Key: "trips", Title: "round trips"},
	{Key: "floor_trips", Title: "its floor's"},
}

// refundClients are the client counts of the two tables.
var refundClients = []int{1, 16}

// Refund measures one refund in one transaction, with and without Holdfast. The two take
// turns, transaction by transaction.
func Refund(ctx context.Context, p *Plan) ([]result.Table, error) {
	return p.pairs(ctx, "refund", "A refund under Do, against the same transaction bare, in turns", false)
}

// Replay repeats refunds that were made, compared with the plain read of a row.
func Replay(ctx context.Context, p *Plan) ([]result.Table, error) {
	return p.pairs(ctx, "replay", "A replay under Do, against the read of one row by its key, in turns", true)
}

func (p *Plan) pairs(ctx context.Context, name, title string, replays bool) (tables []result.Table, err error) {
	for _, clients := range p.clients(refundClients) {
		t := result.Table{Workload: name, Title: title, Clients: clients, Columns: pairColumns, Picture: result.Bars("x", "times its floor")}
		for _, e := range p.Engines {
			if e.Name == sqlengine.SQLite && clients > 1 {
				continue // one connection: clients would measure their wait for it
			}
			list, err := p.enginePairs(ctx, e, clients, replays, turns)
			t.Rows = append(t.Rows, list...)
			if err != nil {
				return append(tables, t), err
			}
		}
		if clients > 1 {
			t.Notes = append(t.Notes, "SQLite has one writer: its clients would measure each other.")
		}
		tables = append(tables, t)
	}
	return tables, nil
}

func (p *Plan) enginePairs(ctx context.Context, e *sqlengine.Engine, clients int, replays bool, compare comparison) (list []result.Row, err error) {
	var open closers
	defer func() { err = errors.Join(err, open.close(ctx)) }()
	var entrants []*entrant
	for _, pair := range refunds.Pairs(e.Name) {
		if pair.Replays != replays {
			continue
		}
		n, closes, err := p.pair(ctx, e, clients, pair, compare)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", e.Name, pair.Variant.Name, err)
		}
		open.later(func(context.Context) error { return closes() })
		entrants = append(entrants, n)
	}
	err = p.rounds(ctx, e.Name, entrants)
	return rows(entrants, ""), err
}

// pair opens both forms and runs them in turns.
func (p *Plan) pair(ctx context.Context, e *sqlengine.Engine, clients int, pair refunds.Pair, compare comparison) (*entrant, func() error, error) {
	variant, closeVariant, err := pair.Variant.Open(ctx, e, nil)
	if err != nil {
		return nil, nil, err
	}
	floor, closeFloor, err := pair.Floor.Open(ctx, e, nil)
	if err != nil {
		return nil, nil, errors.Join(err, closeVariant())
	}
	closes := func() error { return errors.Join(closeVariant(), closeFloor()) }
	keys := newKeys(clients, pair.Replays)
	if pair.Replays {
		if err := keys.make(ctx, variant); err != nil {
			return nil, nil, errors.Join(err, closes())
		}
	}
	fixed, err := countRefund(ctx, e, pair, keys)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("counting: %w", err), closes())
	}
	kind := pair.Variant.Kind
	if pair.Variant.Name == pair.Floor.Name {
		kind = "control"
	}
	return &entrant{
		row:    result.Row{Group: e.Name, Name: pair.Variant.Name + " ÷ " + pair.Floor.Name, Kind: kind, Against: pair.Floor.Name},
		engine: e, fixed: fixed,
		slice: func(ctx context.Context) (figures, error) {
			return compare(ctx, clients, p.Slice, []measure.Op{keys.op(variant), keys.op(floor)})
		},
	}, closes, nil
}

// comparison compares two operations of so many clients, in a slice of that length.
type comparison func(ctx context.Context, clients int, length time.Duration, ops []measure.Op) (figures, error)

// turns runs two operations in turns and compares them.
func turns(ctx context.Context, clients int, length time.Duration, ops []measure.Op) (figures, error) {
	t, err := measure.Turns(ctx, clients, length, ops)
	f, floor := latency(t[0]), latency(t[1])
	f["floor_p50"], f["floor_p99"] = floor["p50"], floor["p99"]
	f["x"], f["x_mean"] = f["p50"]/floor["p50"], f["mean"]/floor["mean"]
	delete(f, "per_second") // the two share the time
	return f, err
}

// keys holds the refunds of each client: its own orders, and keys that are new or, for
// replays, were used before.
type keys struct {
	clients int
	next    []int64
	known   [][]string
}

func newKeys(clients int, replays bool) *keys {
	k := &keys{clients: clients, next: make([]int64, clients)}
	if replays {
		k.known = make([][]string, clients)
		for c := range k.known {
			for range ownKeys {
				k.known[c] = append(k.known[c], refunds.NewKey(c))
			}
		}
	}
	return k
}

// make makes the refunds that are replayed later.
func (k *keys) make(ctx context.Context, do refunds.Do) error {
	for c := range k.known {
		for i, key := range k.known[c] {
			if err := do(ctx, k.order(c, int64(i)), key); err != nil {
				return err
			}
		}
	}
	return nil
}

// order returns the n-th order of a client.
func (k *keys) order(client int, n int64) int64 {
	each := int64(refunds.Orders / k.clients)
	return 1 + int64(client)*each + n%min(each, ownKeys)
}

func (k *keys) op(do refunds.Do) measure.Op {
	return func(ctx context.Context, client int) error {
		n := k.next[client]
		k.next[client]++
		if k.known == nil {
			return do(ctx, k.order(client, n), refunds.NewKey(client))
		}
		return do(ctx, k.order(client, n%ownKeys), k.known[client][n%ownKeys])
	}
}

// countRefund counts the statements and round trips of both forms.
func countRefund(ctx context.Context, e *sqlengine.Engine, pair refunds.Pair, k *keys) (figures, error) {
	f := figures{}
	for _, form := range []struct {
		refunds.Form
		statements, trips string
	}{{pair.Variant, "statements", "trips"}, {pair.Floor, "floor_statements", "floor_trips"}} {
		var said atomic.Int64
		do, closes, err := form.Open(ctx, e, func(context.Context, holdfast.Statement) { said.Add(1) })
		if err != nil {
			return nil, err
		}
		op := k.op(do)
		err = times(counted, func() error { return op(ctx, 0) })
		begun, trips := said.Load(), e.Trips()
		if err == nil {
			err = times(counted, func() error { return op(ctx, 0) })
		}
		if err := errors.Join(err, closes()); err != nil {
			return nil, errors.Join(errors.New(form.Name), err)
		}
		if f[form.statements] = form.Statements; form.Statements == 0 {
			f[form.statements] = float64(said.Load()-begun) / counted
		}
		if e.Wire != nil {
			f[form.trips] = float64(e.Trips()-trips) / counted
		}
	}
	return f, nil
}

func times(n int, f func() error) error {
	for i := range n {
		if err := f(); err != nil {
			return errors.Join(errors.New("the "+strconv.Itoa(i)+"th"), err)
		}
	}
	return nil
}
