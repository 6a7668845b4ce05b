// Package core holds the interfaces between Holdfast's packages and the
// handles that a program already has (database/sql, sqlx, native pgx). An
// adapter package implements Adapter once per handle; everything above it
// runs the dialects' statements through Querier and never sees the driver.
package core

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// Result is what a write reports.
type Result struct {
	// Affected counts rows. On MySQL its meaning depends on the driver's
	// clientFoundRows, so a verdict never rests on it there.
	Affected int64
	// InsertID is the OK packet's insert id on MySQL and MariaDB, else 0.
	InsertID int64
}

// Rows is the part of *sql.Rows and pgx.Rows that is used here.
type Rows interface {
	Columns() ([]string, error)
	Next() bool
	Scan(dest ...any) error
	Err() error
	Close() error
}

// Querier runs one statement: on a pool (autocommit), a connection or a transaction.
type Querier interface {
	Exec(ctx context.Context, query string, args ...any) (Result, error)
	Query(ctx context.Context, query string, args ...any) (Rows, error)
}

// Adapter is one kind of handle: a pool and its transaction type.
type Adapter[Tx any] interface {
	Querier
	// Acquire pins one connection of the pool.
	Acquire(ctx context.Context) (Conn[Tx], error)
	// Join gives a caller's transaction as a Querier; false when tx is nil.
	Join(tx Tx) (Querier, bool)
	// Rollback ends a caller's transaction.
	Rollback(ctx context.Context, tx Tx) error
}

// ErrNoListener means that the handle cannot wait for notifications.
var ErrNoListener = errors.New("holdfast: the handle has no connection to listen on")

// Listener is an Adapter whose driver can wait for the engine's notifications.
type Listener interface {
	// Listen runs statement, which subscribes, on a connection that nobody else
	// uses then, calls ready, and then each with every notification, until ctx
	// ends or the connection does. An ErrNoListener lasts.
	Listen(ctx context.Context, statement string, ready func(), each func(payload string)) error
}

// Conn is one pinned connection.
type Conn[Tx any] interface {
	Querier
	Begin(ctx context.Context, opts TxOptions) (Tx, error)
	Commit(ctx context.Context, tx Tx) error
	Rollback(ctx context.Context, tx Tx) error
	// Raw calls f with the driver's own connection.
	Raw(f func(driverConn any) error) error
	// Release gives the connection back to the pool, or closes it.
	Release(discard bool)
}

// TxOptions are the settings of one transaction.
type TxOptions struct {
	Isolation   sql.IsolationLevel
	LockTimeout time.Duration
	// FirstSets is true when the first statement of the transaction sets the
	// lock timeout itself, which saves a round trip on PostgreSQL.
	FirstSets bool
	// First, if not nil, is the transaction's first statement. Its outcome is in
	// it when the function is called.
	First *Bound
	// Last, if not nil, is filled by the function and run after it. It touches
	// one row if, and only if, the transaction is still the one of First, so
	// that the fence's mark and check are not needed.
	Last *Bound
}

// Pipeline is a Conn whose driver sends several statements in one round trip.
type Pipeline[Tx any] interface {
	// BeginWith begins a transaction and runs first in it, whose error is left
	// in first: an error that is returned means that nothing was begun.
	BeginWith(ctx context.Context, opts TxOptions, first *Bound) (Tx, error)
	// CommitWith runs last, in its form that fails where it touches no row, and
	// unless it failed it commits. An answer of the server to last is left in it and means
	// that nothing was committed; the error that is returned is the commit's.
	CommitWith(ctx context.Context, tx Tx, last *Bound) error
}
