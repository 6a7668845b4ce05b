package workload

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/holdfast-go/holdfast/bench/internal/refunds"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
)

// loggedRefunds is the number of refunds between two reads of the log's position.
const loggedRefunds = 250

// Log measures the bytes that a refund adds to the server's log (WAL, redo), with and without
// Holdfast, in turns. The log is the whole server's, so no other program may use it. SQLite's WAL has
// whole pages, and is left out.
func Log(ctx context.Context, p *Plan) ([]result.Table, error) {
	t := result.Table{
		Workload: "log", Title: "Log bytes of a refund, against the same transaction bare", Clients: 1,
		Columns: []result.Column{{Key: "x", Title: "ratio", Spread: true}, {Key: "bytes", Title: "bytes"}, {Key: "floor_bytes", Title: "its floor's"}},
		Picture: result.Bars("x", "times its floor"),
	}
	for _, e := range p.Engines {
		if e.Name == sqlengine.SQLite {
			continue
		}
		list, err := p.logged(ctx, e)
		t.Rows = append(t.Rows, list...)
		if err != nil {
			return []result.Table{t}, fmt.Errorf("%s: %w", e.Name, err)
		}
	}
	return []result.Table{t}, nil
}

func (p *Plan) logged(ctx context.Context, e *sqlengine.Engine) (list []result.Row, err error) {
	var open closers
	defer func() { err = errors.Join(err, open.close(ctx)) }()
	var entrants []*entrant
	for _, pair := range refunds.Pairs(e.Name) {
		if pair.Replays {
			continue
		}
		var ops []func(context.Context) error
		for _, form := range []refunds.Form{pair.Variant, pair.Floor} {
			do, closes, err := form.Open(ctx, e, nil)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", form.Name, err)
			}
			open.later(func(context.Context) error { return closes() })
			op := newKeys(1, false).op(do)
			ops = append(ops, func(ctx context.Context) error {
				for range loggedRefunds {
					if err := op(ctx, 0); err != nil {
						return err
					}
				}
				return nil
			})
		}
		kind := pair.Variant.Kind
		if pair.Variant.Name == pair.Floor.Name {
			kind = "control"
		}
		entrants = append(entrants, &entrant{
			row:    result.Row{Group: e.Name, Name: pair.Variant.Name + " ÷ " + pair.Floor.Name, Kind: kind, Against: pair.Floor.Name},
			engine: e,
			slice:  func(ctx context.Context) (figures, error) { return logBytes(ctx, e, ops) },
		})
	}
	err = p.rounds(ctx, e.Name, entrants)
	return rows(entrants, ""), err
}

// logBytes compares the bytes of two operations, each of loggedRefunds refunds.
func logBytes(ctx context.Context, e *sqlengine.Engine, ops []func(context.Context) error) (figures, error) {
	var bytes [2]float64
	for i, op := range ops {
		before, err := logPosition(ctx, e)
		if err != nil {
			return nil, err
		}
		if err := op(ctx); err != nil {
			return nil, err
		}
		after, err := logPosition(ctx, e)
		if err != nil {
			return nil, err
		}
		bytes[i] = (after - before) / loggedRefunds
	}
	return figures{"bytes": bytes[0], "floor_bytes": bytes[1], "x": bytes[0] / bytes[1]}, nil
}

// logPosition reads how many bytes the server has written to its log.
func logPosition(ctx context.Context, e *sqlengine.Engine) (float64, error) {
	if e.Name == sqlengine.Postgres {
		var n float64
		err := e.SQL.QueryRowContext(ctx, `SELECT pg_current_wal_insert_lsn() - '0/0'`).Scan(&n)
		return n, err
	}
	var name, value string
	err := e.SQL.QueryRowContext(ctx, `SHOW GLOBAL STATUS WHERE variable_name IN ('Innodb_redo_log_current_lsn', 'Innodb_lsn_current')`).Scan(&name, &value)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(value, 64)
}
