package locks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// batonByHand is the lease row of the bare statements, taken with a GET_LOCK in the hand: the
// waiter blocks in GET_LOCK until the holder has freed the row. Each holder and each waiter has
// a connection, on which its four statements run.
func batonByHand(_ context.Context, w *World) (*Lock, error) {
	d, pool := dialectOf(w.Engine.Name), w.Engine.SQL
	return &Lock{Acquire: func(ctx context.Context, _ int, key string) (Release, error) {
		c, err := pool.Conn(ctx)
		if err != nil {
			return nil, err
		}
		name, id := []byte(key), newAttempt()
		if err := passBaton(ctx, c, `SELECT GET_LOCK(?, 60)`, key); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		for granted := false; !granted; {
			granted, err = take(ctx, c, d.take, name, id[:])
			if err == nil && !granted {
				err = pollSlow.sleep(ctx) // a holder lost its connection, and its row expires
			}
			if err != nil {
				return nil, errors.Join(err, drop(ctx, c, key))
			}
		}
		return func(ctx context.Context) error {
			r, err := c.ExecContext(ctx, d.free, name, id[:])
			if err == nil {
				err = one(r.RowsAffected())
			}
			return errors.Join(err, drop(ctx, c, key))
		}, nil
	}}, nil
}

// take takes the row, if it is free.
func take(ctx context.Context, c *sql.Conn, query string, name, id []byte) (bool, error) {
	r, err := c.ExecContext(ctx, query, name, id, ttl)
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n > 0, err
}

// drop gives the baton to the next waiter, and the connection back.
func drop(ctx context.Context, c *sql.Conn, key string) error {
	return errors.Join(passBaton(context.WithoutCancel(ctx), c, `SELECT RELEASE_LOCK(?)`, key), c.Close())
}

func passBaton(ctx context.Context, c *sql.Conn, query, key string) error {
	var got sql.NullInt64
	if err := c.QueryRowContext(ctx, query, key).Scan(&got); err != nil {
		return err
	}
	if got.Int64 != 1 {
		return fmt.Errorf("%s: %v", query, got)
	}
	return nil
}
