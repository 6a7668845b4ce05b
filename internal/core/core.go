// Package core defines the interfaces between Holdfast's packages and the handles of a program
// (database/sql, sqlx, native pgx). An adapter package implements Adapter once per handle. The
// other packages run the dialects' statements through Querier and never see the driver.
package core

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/internal/errcode"
)

// Result is the result of a write.
type Result struct {
	// Affected counts rows. On MySQL its meaning depends on the driver's clientFoundRows, so
	// no claim is decided by it there.
	Affected int64
	// InsertID is the insert id of the OK packet on MySQL and MariaDB, and 0 on other engines.
	InsertID int64
}

// Rows is the part of *sql.Rows and pgx.Rows that Holdfast uses.
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

// RowQuerier is a Querier that reads one row with less work: see QueryRow.
type RowQuerier interface {
	QueryRow(ctx context.Context, dest []any, query string, args ...any) (found bool, err error)
}

// Batcher is a Querier that sends two statements in one round trip.
type Batcher interface {
	Querier
	// Both runs second after first, unless first failed.
	Both(ctx context.Context, first, second Bound) (a, b Reply)
}

// Adapter adapts one kind of handle: a pool and its transaction type.
type Adapter[Tx any] interface {
	Querier
	// Acquire pins one connection of the pool.
	Acquire(ctx context.Context) (Conn[Tx], error)
	// Join returns a caller's transaction as a Querier. It returns ErrNoTx if tx is nil, and
	// another error if Holdfast cannot join tx.
	Join(tx Tx) (Querier, error)
	// Rollback rolls back a caller's transaction.
	Rollback(ctx context.Context, tx Tx) error
}

// ErrNoTx means that a nil transaction was given.
var ErrNoTx = errcode.New("no-transaction", "holdfast: no transaction given")

// ErrNoListener means that the handle cannot receive notifications.
var ErrNoListener = errors.New("holdfast: the handle has no connection to listen on")

// Listener is an Adapter whose driver can receive the engine's notifications.
type Listener interface {
	// Listen runs statement, which subscribes, on a dedicated connection. It then calls ready,
	// and after that each for every notification, until ctx or the connection ends.
	// ErrNoListener is permanent.
	Listen(ctx context.Context, statement string, ready func(), each func(payload string)) error
}

// PerSpared is the least maximum size of a pool for each connection that it spares.
const PerSpared = 4

// Sparing is an Adapter that knows how large its pool may become.
type Sparing interface {
	// Spares reports whether n connections that last leave enough of the pool for others.
	Spares(n int) bool
}

// Limited is an Adapter whose pool may have a bound.
type Limited interface {
	// Connections returns how many are in use, and how many the pool may have: 0 if it has no bound.
	Connections() (used, most int)
}

// Conn is one pinned connection.
type Conn[Tx any] interface {
	Querier
	Begin(ctx context.Context, opts TxOptions) (Tx, error)
	Commit(ctx context.Context, tx Tx) error
	Rollback(ctx context.Context, tx Tx) error
	// Raw calls f with the driver's own connection.
	Raw(f func(driverConn any) error) error
	// Release returns the connection to the pool, or closes it if discard is true.
	Release(discard bool)
}

// Native is a Conn whose driver's own connection may be had without Raw, to identify it.
type Native interface{ Native() any }

// Timely is a Conn that may know that Commit ends with its context, or waits for no server.
type Timely interface {
	// Timely is asked after a transaction has begun.
	Timely() bool
}

// Keeper is a Conn whose session may keep a setting from one of Holdfast's transactions to the next.
type Keeper interface {
	// Keep reports whether the session has the setting. If it has not, change makes it and returns the
	// statement that restores what was before, when another user gets the connection.
	Keep(ctx context.Context, kept Kept, change func(q Querier) (undo string, err error)) (bool, error)
	// Intact reports whether the open transaction is certainly the one that was begun. False means "not
	// known". If nothing can tell any more, and the program cannot have committed a part of it, again is
	// the error of Kept.Again.
	Intact() (intact bool, again error)
}

// Kept is a setting that a session keeps.
type Kept struct {
	// Setting is the statement that makes it.
	Setting string
	// Implicit: a transaction begins with its first statement.
	Implicit bool
	// Lost returns the error for the statements that follow if err has ended the transaction.
	Lost func(err error) error
	// Survives reports whether the transaction surely goes on after a statement failed with err, and
	// Ends whether a statement may end it. Nil: only the server knows.
	Survives func(err error) bool
	Ends     func(query string) bool
	// Mark is the savepoint that proves the transaction, if it needs one. It is set when it may be needed.
	// Again returns the error of a transaction that has no mark, after an error that it may
	// not have survived.
	Mark  string
	Again func(err error) error
}

// keeping is the context of Keeping.
type keeping struct{ context.Context }

type keepsKey struct{}

// Value implements context.Context.
func (k keeping) Value(key any) any {
	if key == (keepsKey{}) {
		return k
	}
	return k.Context.Value(key)
}

// Keeping returns a context that gets a connection for a transaction of Holdfast's.
func Keeping(ctx context.Context) context.Context { return keeping{ctx} }

// Keeps reports whether ctx is that of Keeping.
func Keeps(ctx context.Context) bool { return ctx.Value(keepsKey{}) != nil }

// Unkept returns ctx without the mark of Keeping, for a driver of the program's.
func Unkept(ctx context.Context) context.Context {
	if k, is := ctx.(keeping); is {
		return k.Context
	}
	if !Keeps(ctx) {
		return ctx
	}
	return context.WithValue(ctx, keepsKey{}, nil)
}

// TxOptions are the settings of one transaction.
type TxOptions struct {
	Isolation   sql.IsolationLevel
	LockTimeout time.Duration
	// FirstSets is true if the first statement of the transaction sets the lock timeout
	// itself. That saves a round trip on PostgreSQL.
	FirstSets bool
	// Setup, if not empty, is a statement that runs between BEGIN and the first one. A Pipeline sends it.
	Setup string
}

// CheckIsolation returns an [errcode.InputError] for READ UNCOMMITTED, which reads rows that may be rolled back.
func CheckIsolation(field string, level sql.IsolationLevel) error {
	if level == sql.LevelReadUncommitted {
		return errcode.Invalid(field, "READ UNCOMMITTED reads what may be rolled back: use READ COMMITTED or a higher level")
	}
	return nil
}

// Pipeline is a Conn whose driver may send several statements in one round trip.
type Pipeline[Tx any] interface {
	// Pipes reports whether it can.
	Pipes() bool
	// BeginWith begins a transaction, which ends with life, and runs first in it. The error of
	// first is in its answer. A returned error means that no transaction began.
	BeginWith(ctx, life context.Context, opts TxOptions, first Bound) (Tx, Reply, error)
	// CommitWith runs last in the form that fails if it affects no row (OrFail), and commits
	// unless it failed. The server's error for last is in its answer, and means that nothing
	// was committed. The returned error is that of the commit. It returns when ctx has ended.
	CommitWith(ctx context.Context, tx Tx, last Bound) (Reply, error)
}
