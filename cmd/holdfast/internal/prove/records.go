package prove

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/reaper"
)

const (
	bodyLife = 50 * time.Millisecond
	// slowEnough is when a slow statement is cancelled.
	slowEnough = 100 * time.Millisecond
)

// lostTransaction ends transactions under functions that ignore the error.
func lostTransaction(ctx context.Context, t *trial) error {
	clients, err := t.racing(ctx)
	if err != nil {
		return err
	}
	var cancelled atomic.Int64
	slow := func(ctx context.Context, tx *sql.Tx) {
		ctx, cancel := context.WithTimeout(ctx, slowEnough)
		defer cancel()
		if err := t.exec(ctx, tx, t.dialect.Prove.Slow); err != nil && ctx.Err() != nil {
			cancelled.Add(1)
		}
	}
	for range 2 {
		if err := t.ignores(ctx, clients[:1], slow); err != nil {
			return err
		}
		if !t.dialect.Capabilities.RowLocks {
			continue
		}
		if err := t.deadlock(ctx, clients[:2]); err != nil {
			return err
		}
	}
	if cancelled.Load() == 0 {
		return errors.New("no statement was cancelled while it ran")
	}
	return nil
}

// deadlock lets two functions update two rows in opposite orders.
func (t *trial) deadlock(ctx context.Context, clients []*client) error {
	var rows [2]int64
	for i := range rows {
		var err error
		if rows[i], err = t.newRow(ctx); err != nil {
			return err
		}
	}
	var arrived atomic.Int64
	met := make(chan struct{})
	return t.ignores(ctx, clients, func(ctx context.Context, tx *sql.Tx) {
		n := arrived.Add(1)
		if n > 2 {
			return // the function runs again
		}
		_ = t.exec(ctx, tx, `UPDATE {rows} SET n = n + 1 WHERE k = $1`, rows[n-1])
		if n == 2 {
			close(met)
		}
		select {
		case <-met:
			_ = t.exec(ctx, tx, `UPDATE {rows} SET n = n + 1 WHERE k = $1`, rows[2-n])
		case <-ctx.Done():
		}
	})
}

// ignores runs an operation on each client. Its function loses its transaction, ignores the
// error and writes.
func (t *trial) ignores(ctx context.Context, clients []*client, lose func(ctx context.Context, tx *sql.Tx)) error {
	keys := make([]int64, len(clients))
	for i := range keys {
		keys[i] = t.ids.Add(1)
	}
	done := make([]bool, len(clients))
	_ = race(len(clients), func(i int) error {
		t.attempts.Add(1)
		_, err := idempotency.Do(ctx, clients[i].store, op(keys[i]), func(ctx context.Context, tx *sql.Tx) (int64, error) {
			lose(ctx, tx)
			_ = t.effect(ctx, tx, keys[i])
			return keys[i], nil
		})
		done[i] = err == nil
		return nil
	})
	for i, k := range keys {
		n, err := t.effects(ctx, k)
		switch {
		case err != nil:
			return err
		case n == 0 && done[i]:
			return brokenf("a function ignored that its transaction had ended: its claim stands, and its effect does not")
		}
		if err := t.executedOnce(ctx, clients[i], k); err != nil {
			return err
		}
	}
	return nil
}

// expiredResult requests a key whose result is kept for only a moment.
func expiredResult(ctx context.Context, t *trial) error {
	c, err := t.newClient(ctx, nil, idempotency.Options{ResultTTL: bodyLife})
	if err != nil {
		return err
	}
	defer c.close(ctx)
	k := t.ids.Add(1)
	if _, err := t.do(ctx, c, op(k), k); err != nil {
		return err
	}
	if err := t.untilExpired(ctx, c, k); err != nil {
		return err
	}
	r, err := reaper.New(ctx, c.db)
	if err != nil {
		return err
	}
	if _, err := r.Sweep(ctx); err != nil {
		return err
	}
	if err := t.untilExpired(ctx, c, k); err != nil {
		return err
	}
	n, err := t.effects(ctx, k)
	return errors.Join(err, unless(err != nil || n == 1, "a key whose result has expired has %d effects", n))
}

func (t *trial) untilExpired(ctx context.Context, c *client, k int64) error {
	for {
		t.attempts.Add(1)
		outcome, err := t.do(ctx, c, op(k), k)
		switch {
		case errors.Is(err, idempotency.ErrExpired):
			return nil
		case err != nil:
			return err
		case outcome == idempotency.Executed:
			return brokenf("a key whose result has expired was executed again")
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}
