package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/election"
)

// closeDay campaigns, and closes the day when it is elected. If this worker dies, another one is
// elected.
func (d *database) closeDay(ctx context.Context, day string) error {
	for {
		leader, err := election.New(d.locks, "close "+day).Campaign(ctx, nil)
		if err != nil {
			return err
		}
		err = d.lead(ctx, day, leader)
		if e := leader.Resign(ctx); err == nil && !errors.Is(e, sqllock.ErrLost) {
			err = e
		}
		if !errors.Is(err, sqllock.ErrLost) {
			return err
		}
	}
}

// lead waits until every line is booked, and closes the day.
func (d *database) lead(ctx context.Context, day string, leader *election.Leader) error {
	for {
		over, err := d.isClosed(ctx, day)
		if err != nil || over {
			return err
		}
		err = d.db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error { return d.tryClose(ctx, tx, day, leader) })
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-leader.Context().Done():
			return context.Cause(leader.Context()) //nolint:contextcheck // the leadership's own
		case <-time.After(idle):
		}
	}
}

// tryClose closes the day if the file is complete and everything is booked. The guard refuses a
// leader that was stopped and continues after another one was elected.
func (d *database) tryClose(ctx context.Context, tx *sql.Tx, day string, leader *election.Leader) error {
	if err := d.locks.Guard(ctx, tx, leader.Term()); err != nil {
		return err
	}
	var lines, booked int
	switch err := tx.QueryRowContext(ctx, d.rebind(`SELECT line_count FROM days WHERE day = $1 AND state = 'fed'`), day).Scan(&lines); {
	case errors.Is(err, sql.ErrNoRows):
		return nil // not yet
	case err != nil:
		return err
	}
	var total int64
	err := tx.QueryRowContext(ctx, d.rebind(`SELECT COUNT(*), COALESCE(SUM(amount), 0) FROM settlements WHERE day = $1 AND state = 'booked'`), day).Scan(&booked, &total)
	if err != nil || booked < lines {
		return err
	}
	if _, err := tx.ExecContext(ctx, d.rebind(`UPDATE days SET state = 'closed' WHERE day = $1`), day); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, d.rebind(`INSERT INTO closings (day, token, line_count, total) VALUES ($1, $2, $3, $4)`), day, leader.Token(), booked, total)
	return err
}

func (d *database) isClosed(ctx context.Context, day string) (closed bool, err error) {
	var n int
	err = d.pool.QueryRowContext(ctx, d.rebind(`SELECT COUNT(*) FROM days WHERE day = $1 AND state = 'closed'`), day).Scan(&n)
	return n > 0, err
}
