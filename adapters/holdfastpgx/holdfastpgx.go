// Package holdfastpgx opens Holdfast on a native pool of github.com/jackc/pgx. Functions receive
// the native pgx.Tx.
//
// A pseudo-nested transaction (Begin of a pgx.Tx) is a savepoint, and the outer COMMIT would store
// what Holdfast has rolled back in the inner one. Functions that join a transaction refuse a
// pseudo-nested one with [holdfast.ErrInvalid]: pass the outer transaction.
package holdfastpgx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/pgxadapter"
)

// Open opens Holdfast on pool. The pool stays the caller's: Holdfast does not close it, and
// changes no session setting of its connections permanently. Open checks the server, its settings
// and Holdfast's tables, and refuses the environments that docs/reference/environments.md lists
// ([holdfast.ErrUnsupported]). Each later connection of the pool is checked once, in one round
// trip.
//
// Every query mode of pgx works, including the simple protocol (PgBouncer).
func Open(ctx context.Context, pool *pgxpool.Pool, opts ...holdfast.Options) (*holdfast.DB[pgx.Tx], error) {
	if pool == nil {
		return nil, &holdfast.InputError{Field: "pool", Problem: "it is nil"}
	}
	return access.Open(ctx, new(holdfast.DB[pgx.Tx]), adapter(pool), opts)
}

var _ = pgxadapter.Register(adapter)

// adapter is what Open opens Holdfast on.
func adapter(pool *pgxpool.Pool) core.Adapter[pgx.Tx] { return handle{querier{pool}, pool} }

type handle struct {
	querier
	pool *pgxpool.Pool
}

func (h handle) Acquire(ctx context.Context) (core.Conn[pgx.Tx], error) {
	c, err := h.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	_ = replicated(c.Conn()) // a commit of the program's left it
	return (*conn)(c), nil
}

func (h handle) Join(tx pgx.Tx) (core.Querier, error) {
	switch {
	case tx == nil:
		return nil, holdfast.ErrNoTx
	case pseudoNested(reflect.ValueOf(tx), wrappers):
		return nil, errPseudoNested
	}
	return querier{tx}, nil
}

func (h handle) Rollback(ctx context.Context, tx pgx.Tx) error { return named(tx.Rollback(ctx)) }

// Connections implements core.Limited.
func (h handle) Connections() (used, most int) {
	s := h.pool.Stat()
	return int(s.AcquiredConns()), int(s.MaxConns())
}

// Spares implements core.Sparing.
func (h handle) Spares(n int) bool { return int(h.pool.Stat().MaxConns()) >= n*core.PerSpared }

// Listen implements core.Listener on its own connection, outside of the pool.
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
		ctx, cancel := context.WithTimeout(context.Background(), core.CleanupBound())
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

// conn is a connection of the pool.
type conn pgxpool.Conn

func (c *conn) pooled() *pgxpool.Conn { return (*pgxpool.Conn)(c) }

func (c *conn) native() *pgx.Conn { return c.pooled().Conn() }

func (c *conn) Exec(ctx context.Context, query string, args ...any) (core.Result, error) {
	r, err := querier{c.native()}.Exec(ctx, query, args...)
	return r, c.stands(err)
}

func (c *conn) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	r, err := c.native().Query(ctx, query, args...)
	if err != nil {
		return nil, named(err)
	}
	return connRows{rows{r}, c}, nil
}

// QueryRow implements core.RowQuerier.
func (c *conn) QueryRow(ctx context.Context, dest []any, query string, args ...any) (bool, error) {
	found, err := querier{c.native()}.QueryRow(ctx, dest, query, args...)
	return found, c.stands(err)
}

// connRows are those of a statement that commits itself.
type connRows struct {
	rows
	c *conn
}

func (r connRows) Close() error { return r.c.stands(r.rows.Close()) }

// stands adds to err what a notice said about the commit of a statement outside of a transaction.
func (c *conn) stands(err error) error {
	if err != nil || c.native().PgConn().TxStatus() != 'I' {
		return err
	}
	return replicated(c.native())
}

// Timely implements core.Timely.
func (c *conn) Timely() bool { return true }

func (c *conn) Begin(ctx context.Context, opts core.TxOptions) (pgx.Tx, error) {
	level, err := isoLevel(opts.Isolation)
	if err != nil {
		return nil, err
	}
	return c.pooled().BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
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

func (c *conn) Commit(ctx context.Context, tx pgx.Tx) error {
	if err := sendable(c.native()); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return named(err)
	}
	return replicated(c.native())
}

// sendable returns the error with which COMMIT cannot be sent, before it is sent.
func sendable(c *pgx.Conn) error {
	switch native := c.PgConn(); {
	case native.IsBusy():
		return holdfast.ErrRowsOpen
	case native.IsClosed():
		return fmt.Errorf("%w: its connection was lost before COMMIT was sent", sql.ErrTxDone)
	}
	return nil
}

func (c *conn) Rollback(ctx context.Context, tx pgx.Tx) error { return named(tx.Rollback(ctx)) }

func (c *conn) Raw(f func(driverConn any) error) error { return f(c.native()) }

// Native implements core.Native.
func (c *conn) Native() any { return c.native() }

func (c *conn) Release(discard bool) {
	if discard {
		ctx, cancel := context.WithTimeout(context.Background(), core.CleanupBound())
		defer cancel()
		_ = c.pooled().Hijack().Close(ctx)
		return
	}
	c.pooled().Release()
}

// named converts the error of a transaction that ended earlier to database/sql's error. If pgx
// refuses a statement because the rows of another are open, it adds what to do.
func named(err error) error {
	switch {
	case errors.Is(err, pgx.ErrTxClosed):
		return sql.ErrTxDone
	case err != nil && pgconn.SafeToRetry(err) && strings.Contains(err.Error(), "conn busy"):
		return fmt.Errorf("%w: %w", holdfast.ErrRowsOpen, err)
	}
	return err
}

type runner interface {
	Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, query string, args ...any) (pgx.Rows, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

type querier struct{ r runner }

func (q querier) Exec(ctx context.Context, query string, args ...any) (core.Result, error) {
	tag, err := q.r.Exec(ctx, query, args...)
	return core.Result{Affected: tag.RowsAffected()}, named(err)
}

func (q querier) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	r, err := q.r.Query(ctx, query, args...)
	if err != nil {
		return nil, named(err)
	}
	return rows{r}, nil
}

// QueryRow implements core.RowQuerier.
func (q querier) QueryRow(ctx context.Context, dest []any, query string, args ...any) (found bool, err error) {
	r, err := q.r.Query(ctx, query, args...)
	if err != nil {
		return false, named(err)
	}
	if found = r.Next(); found {
		err = r.Scan(dest...)
	}
	r.Close()
	if err == nil {
		err = named(r.Err())
	}
	return found, err
}

type rows struct{ pgx.Rows }

func (r rows) Err() error { return named(r.Rows.Err()) }

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
