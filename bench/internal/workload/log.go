package workload

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/bench/internal/refunds"
	"github.com/holdfast-go/holdfast/bench/internal/result"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
)

// loggedRefunds is the number of refunds between two reads of the log's position.
const loggedRefunds = 250

// Log measures the bytes that a refund adds to the server's logs (WAL, redo, binlog), with and without
// Holdfast, in turns. The logs are the whole server's, so no other program may use it. SQLite's WAL has
// whole pages, and is left out.
func Log(ctx context.Context, p *Plan) ([]result.Table, error) {
	t := result.Table{
		Workload: "log", Title: "Log bytes of a refund, against the same transaction bare", Clients: 1,
		Columns: []result.Column{
			{Key: "added", Title: "bytes added", Spread: true},
			{Key: "x", Title: "ratio", Spread: true},
			{Key: "bytes", Title: "bytes"},
			{Key: "floor_bytes", Title: "its floor's"},
		},
		Picture: result.Bars("added", "bytes added"),
		Notes:   []string{"The binlog counts where the server has one, as MySQL does by default."},
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
	return figures{"bytes": bytes[0], "floor_bytes": bytes[1], "added": bytes[0] - bytes[1], "x": bytes[0] / bytes[1]}, nil
}

// logPosition reads how many bytes the server has written to its logs.
func logPosition(ctx context.Context, e *sqlengine.Engine) (n float64, err error) {
	if e.Name == sqlengine.Postgres {
		err := e.SQL.QueryRowContext(ctx, `SELECT pg_current_wal_insert_lsn() - '0/0'`).Scan(&n)
		return n, err
	}
	var name string
	err = e.SQL.QueryRowContext(ctx, `SHOW GLOBAL STATUS WHERE variable_name IN ('Innodb_redo_log_current_lsn', 'Innodb_lsn_current')`).Scan(&name, &n)
	if err != nil {
		return 0, err
	}
	var on bool
	if err := e.SQL.QueryRowContext(ctx, `SELECT @@log_bin`).Scan(&on); err != nil || !on {
		return n, err
	}
	rows, err := e.SQL.QueryContext(ctx, `SHOW BINARY LOGS`)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	columns, err := rows.Columns() // MariaDB has two, MySQL three
	if err != nil {
		return 0, err
	}
	var size float64
	into := make([]any, len(columns))
	for i := range into {
		into[i] = new(any)
	}
	into[1] = &size
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return 0, err
		}
		n += size
	}
	return n, rows.Err()
}
