package locks

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/lib/pq"
)

// The module proxy does not serve the libraries cirello.io/pglock and
// github.com/allisson/go-pglock. The stand-ins are our own code: they send as many statements
// through the same driver (lib/pq) and wait in the same way. Their results are only an
// estimate.

// standInTable is the schema for the stand-in of pglock.
var standInTable = []string{
	`CREATE SEQUENCE standin_versions`,
	`CREATE TABLE standin_locks (name text PRIMARY KEY, version bigint NOT NULL, holder text)`,
}

// standInLease is the time that a loser of the pglock stand-in sleeps: its lease. The
// library's default is 20 s, which is too long for any progress within a slice.
const standInLease = time.Second

// openPQ opens a pool of lib/pq, whose connections are not counted.
func openPQ(w *World) (*sql.DB, error) {
	connector, err := pq.NewConnector(w.Engine.URL)
	if err != nil {
		return nil, errors.New("lib/pq refuses the URL") // err may quote a password
	}
	pool := sql.OpenDB(connector)
	pool.SetMaxOpenConns(w.Engine.Conns)
	pool.SetMaxIdleConns(w.Engine.Conns)
	return pool, nil
}

// likePglock uses a sequence number, an upsert that losers run as well, and a delete. A
// release wakes no waiter: a loser sleeps for a lease.
func likePglock(_ context.Context, w *World) (*Lock, error) {
	pool, err := openPQ(w)
	if err != nil {
		return nil, err
	}
	take := func(ctx context.Context, key string, seen int64, holder string) (version, mine int64, err error) {
		if err := pool.QueryRowContext(ctx, `SELECT nextval('standin_versions')`).Scan(&mine); err != nil {
			return 0, 0, err
		}
		err = pool.QueryRowContext(ctx, `INSERT INTO standin_locks AS l (name, version, holder) VALUES ($1, $2, $4)
ON CONFLICT (name) DO UPDATE SET version = CASE WHEN l.version = $3 THEN $2 ELSE l.version END,
holder = CASE WHEN l.version = $3 THEN $4 ELSE l.holder END RETURNING version`, key, mine, seen, holder).Scan(&version)
		return version, mine, err
	}
	sleep := Poll{standInLease, standInLease}
	return &Lock{
		Acquire: func(ctx context.Context, _ int, key string) (Release, error) {
			seen := int64(-1)
			for {
				version, mine, err := take(ctx, key, seen, "bench")
				if err != nil {
					return nil, err
				}
				if version == mine {
					return func(ctx context.Context) error {
						r, err := pool.ExecContext(ctx, `DELETE FROM standin_locks WHERE name = $1 AND version = $2`, key, mine)
						if err != nil {
							return err
						}
						return one(r.RowsAffected())
					}, nil
				}
				seen = version
				if err := sleep.sleep(ctx); err != nil {
					return nil, err
				}
			}
		},
		Probe: pool.PingContext,
		Close: func(context.Context) error { return pool.Close() },
	}, nil
}

// likeGoPglock uses advisory locks through database/sql and lib/pq.
func likeGoPglock(_ context.Context, w *World) (*Lock, error) {
	pool, err := openPQ(w)
	if err != nil {
		return nil, err
	}
	return &Lock{
		Acquire: func(ctx context.Context, _ int, key string) (Release, error) {
			c, err := pool.Conn(ctx)
			if err != nil {
				return nil, err
			}
			n := number(key)
			if _, err := c.ExecContext(ctx, `SELECT pg_advisory_lock($1)`, n); err != nil {
				return nil, errors.Join(err, c.Close())
			}
			return func(ctx context.Context) error {
				_, err := c.ExecContext(ctx, `SELECT pg_advisory_unlock($1)`, n)
				return errors.Join(err, c.Close())
			}, nil
		},
		Probe: pool.PingContext,
		Close: func(context.Context) error { return pool.Close() },
	}, nil
}
