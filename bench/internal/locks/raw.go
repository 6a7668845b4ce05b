package locks

import (
	"context"
	"database/sql"
	"errors"
	"hash/fnv"
	"sync"
)

// advisory is PostgreSQL's advisory lock. It writes nothing to disk and has no token, but each
// holder and each waiter needs a connection.
func advisory(_ context.Context, w *World) (*Lock, error) {
	pool := w.Engine.Pgx
	return &Lock{Acquire: func(ctx context.Context, _ int, key string) (Release, error) {
		c, err := pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		n := number(key)
		if _, err := c.Exec(ctx, `SELECT pg_advisory_lock($1)`, n); err != nil {
			c.Release()
			return nil, err
		}
		return func(ctx context.Context) error {
			defer c.Release()
			var held bool
			if err := c.QueryRow(ctx, `SELECT pg_advisory_unlock($1)`, n).Scan(&held); err != nil || !held {
				return errors.Join(err, errors.New("the advisory lock was not there"))
			}
			return nil
		}, nil
	}}, nil
}

// number returns the key as the number of an advisory lock.
func number(key string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	return int64(h.Sum64()) //nolint:gosec // all bits count
}

// getLock is the GET_LOCK of MySQL and MariaDB, which is comparable to an advisory lock.
func getLock(_ context.Context, w *World) (*Lock, error) {
	pool := w.Engine.SQL
	ask := func(ctx context.Context, c *sql.Conn, query, key string) error {
		var got sql.NullInt64
		if err := c.QueryRowContext(ctx, query, key).Scan(&got); err != nil {
			return err
		}
		if got.Int64 != 1 {
			return errors.New("the named lock was not granted, or was not there")
		}
		return nil
	}
	return &Lock{Acquire: func(ctx context.Context, _ int, key string) (Release, error) {
		c, err := pool.Conn(ctx)
		if err != nil {
			return nil, err
		}
		if err := ask(ctx, c, `SELECT GET_LOCK(?, 60)`, key); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		return func(ctx context.Context) error {
			return errors.Join(ask(ctx, c, `SELECT RELEASE_LOCK(?)`, key), c.Close())
		}, nil
	}}, nil
}

// rowLock locks a row FOR UPDATE in a transaction. The server queues the waiters, and each
// holder and each waiter needs a connection.
func rowLock(_ context.Context, w *World) (*Lock, error) {
	pool, d := w.Engine.SQL, dialectOf(w.Engine.Name)
	var made sync.Map // keys whose rows exist
	return &Lock{Acquire: func(ctx context.Context, _ int, key string) (Release, error) {
		if _, there := made.Load(key); !there {
			if _, err := pool.ExecContext(ctx, d.make, []byte(key)); err != nil {
				return nil, err
			}
			made.Store(key, true)
		}
		tx, err := pool.BeginTx(ctx, nil)
		if err != nil {
			return nil, err
		}
		var one int
		err = tx.QueryRowContext(ctx, d.anchor, []byte(key)).Scan(&one)
		if err != nil {
			return nil, errors.Join(err, tx.Rollback())
		}
		return func(context.Context) error { return tx.Commit() }, nil
	}}, nil
}
