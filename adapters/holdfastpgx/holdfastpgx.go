// Package holdfastpgx opens Holdfast on a native pool of github.com/jackc/pgx.
// Functions receive the native pgx.Tx.
package holdfastpgx

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
)

// Open opens Holdfast on pool, which stays the caller's: it is not closed and
// no session setting of its connections is left changed. The engine is asked
// for with one query, and its settings with another.
//
// Every query mode of pgx works, the simple protocol (PgBouncer) included.
func Open(ctx context.Context, pool *pgxpool.Pool, opts ...holdfast.Option) (*holdfast.DB[pgx.Tx], error) {
	if pool == nil {
		return nil, &holdfast.InputError{Field: "pool", Problem: "it is nil"}
	}
	return holdfast.New(ctx, handle{querier{pool}, pool}, opts...)
}

type handle struct {
	querier
	pool *pgxpool.Pool
}

func (h handle) Acquire(ctx context.Context) (core.Conn[pgx.Tx], error) {
	c, err := h.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return conn{querier{c}, c}, nil
}

func (h handle) Join(tx pgx.Tx) (core.Querier, bool) { return querier{tx}, tx != nil }

func (h handle) Rollback(ctx context.Context, tx pgx.Tx) error { return closed(tx.Rollback(ctx)) }

// Listen implements core.Listener on a connection beside the pool.
func (h handle) Listen(ctx context.Context, statement string, ready func(), each func(payload string)) error {
	config := h.pool.Config()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return err
		}
	}
	c, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), holdfast.CleanupTimeout)
		defer cancel()
		_ = c.Close(ctx)
	}()
	if _, err := c.Exec(ctx, statement); err != nil {
		return err
	}
	ready()
	for {
		n, err := c.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		each(n.Payload)
	}
}

type conn struct {
	querier
	c *pgxpool.Conn
}

func (c conn) Begin(ctx context.Context, opts core.TxOptions) (pgx.Tx, error) {
	level, err := isoLevel(opts.Isolation)
	if err != nil {
		return nil, err
	}
	return c.c.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
}

func isoLevel(l sql.IsolationLevel) (pgx.TxIsoLevel, error) {
	switch l {
	case sql.LevelDefault:
		return "", nil
	case sql.LevelReadUncommitted:
		return pgx.ReadUncommitted, nil
	case sql.LevelReadCommitted:
		return pgx.ReadCommitted, nil
	case sql.LevelRepeatableRead, sql.LevelSnapshot:
		return pgx.RepeatableRead, nil
	case sql.LevelSerializable:
		return pgx.Serializable, nil
	default:
		return "", &holdfast.InputError{Field: "Isolation", Problem: "PostgreSQL has no level " + l.String()}
	}
}

func (c conn) Commit(ctx context.Context, tx pgx.Tx) error {
	if err := tx.Commit(ctx); err != nil {
		return closed(err)
	}
	return replicated(c.c.Conn())
}

func (c conn) Rollback(ctx context.Context, tx pgx.Tx) error { return closed(tx.Rollback(ctx)) }

func (c conn) Raw(f func(driverConn any) error) error { return f(c.c.Conn()) }

func (c conn) Release(discard bool) {
	if discard {
		ctx, cancel := context.WithTimeout(context.Background(), holdfast.CleanupTimeout)
		defer cancel()
		_ = c.c.Hijack().Close(ctx)
		return
	}
	c.c.Release()
}

// closed gives a transaction that ended earlier database/sql's name.
func closed(err error) error {
	if errors.Is(err, pgx.ErrTxClosed) {
		return sql.ErrTxDone
	}
	return err
}

type runner interface {
	Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, query string, args ...any) (pgx.Rows, error)
}

type querier struct{ r runner }

func (q querier) Exec(ctx context.Context, query string, args ...any) (core.Result, error) {
	tag, err := q.r.Exec(ctx, query, args...)
	return core.Result{Affected: tag.RowsAffected()}, closed(err)
}

func (q querier) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	r, err := q.r.Query(ctx, query, args...)
	if err != nil {
		return nil, closed(err)
	}
	return rows{r}, nil
}

type rows struct{ pgx.Rows }

func (r rows) Columns() ([]string, error) {
	fields := r.FieldDescriptions()
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return names, r.Err()
}

func (r rows) Close() error {
	r.Rows.Close()
	return r.Err()
}
