package simulation

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	_ "modernc.org/sqlite" // answers what is no statement of the simulation, once

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/sqllock"
)

// tx is the transaction of a handle, as database/sql has it. Leases use none.
type tx struct {
	conn *conn
	done bool
}

type (
	db     = holdfast.DB[*tx]
	locker = sqllock.Locker[*tx]
	lease  = sqllock.Lease
)

// handles are those of the simulated processes. They are opened once: a handle has no goroutine and no
// clock, so all schedules can use it, one after the other.
var handles [3]*adapter

// admitted are the answers of a real SQLite to the statements that open a handle and a Locker.
var admitted = map[string]answer{}

// open opens the handles on a real SQLite.
func open(tb testing.TB) {
	tb.Helper()
	if handles[0] != nil {
		return
	}
	inMemory := memory(tb)
	for i := range handles {
		a := &adapter{id: i, real: inMemory}
		var err error
		if a.db, err = access.Open(tb.Context(), &db{}, core.Adapter[*tx](a), []holdfast.Options{{SingleOwner: true}}); err != nil {
			tb.Fatal(err)
		}
		l, err := sqllock.New(tb.Context(), a.db)
		if err != nil {
			tb.Fatal(err)
		}
		if err := l.Close(tb.Context()); err != nil {
			tb.Fatal(err)
		}
		if _, err := idempotency.New(tb.Context(), a.db); err != nil {
			tb.Fatal(err)
		}
		a.real = nil
		handles[i] = a
	}
}

// adapter is the handle of one process.
type adapter struct {
	id    int
	db    *db
	real  *sql.DB // while the handle is opened
	world *world  // of the schedule that runs
	same  byte    // its address stands for every connection, so each is admitted already
	life  *life   // of a process that may be killed at any time, not only in some calls
}

var _ core.Adapter[*tx] = (*adapter)(nil)

// Acquire implements core.Adapter.
func (a *adapter) Acquire(ctx context.Context) (core.Conn[*tx], error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return &conn{of: a}, nil
}

// Exec and Query implement core.Adapter: each statement has a new connection.
func (a *adapter) Exec(ctx context.Context, text string, args ...any) (core.Result, error) {
	return (&conn{of: a}).Exec(ctx, text, args...)
}

func (a *adapter) Query(ctx context.Context, text string, args ...any) (core.Rows, error) {
	return (&conn{of: a}).Query(ctx, text, args...)
}

// Join implements core.Adapter.
func (*adapter) Join(t *tx) (core.Querier, error) {
	if t == nil {
		return nil, core.ErrNoTx
	}
	return t, nil
}

// Rollback implements core.Adapter.
func (*adapter) Rollback(ctx context.Context, t *tx) error { return t.conn.Rollback(ctx, t) }

var (
	errUnknown = errors.New("the simulation does not know this statement")
	errCut     = errors.New("the connection was cut")
	errBusy    = coded(5)
)

// coded is an error with a code of SQLite's.
type coded int

func (c coded) Error() string { return fmt.Sprint("SQLite error ", int(c)) }
func (c coded) Code() int     { return int(c) }

// conn is one connection of a process.
type conn struct {
	session

	of      *adapter
	cut     bool          // by a fault
	timeout time.Duration // of a wait for the write lock

	provider bool // it is not of the database
}

// Native implements core.Native.
func (c *conn) Native() any { return &c.of.same }

// Raw implements core.Conn.
func (c *conn) Raw(f func(any) error) error { return f(c) }

// RegisterCommitHook and RegisterRollbackHook are what the fence looks for in a driver of SQLite.
func (c *conn) RegisterCommitHook(f func() int32) { c.onCommit = f }
func (c *conn) RegisterRollbackHook(f func())     { c.onRollback = f }

// Begin implements core.Conn. Nothing is sent: SQLite's transaction begins with its first statement.
func (c *conn) Begin(ctx context.Context, _ core.TxOptions) (*tx, error) {
	switch {
	case c.cut:
		return nil, errCut
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	c.txn = &txn{}
	return &tx{conn: c}, nil
}

// Commit implements core.Conn. A context does not end it.
func (c *conn) Commit(ctx context.Context, t *tx) error { return c.end(ctx, t, "commit") }

// Rollback implements core.Conn.
func (c *conn) Rollback(ctx context.Context, t *tx) error { return c.end(ctx, t, "rollback") }

func (c *conn) end(ctx context.Context, t *tx, how string) error {
	switch c.of.world.gate.see(); {
	case t.done:
		return sql.ErrTxDone
	case (c.cut || c.killed(ctx)) && how == "commit":
		c.of.world.gate.doubt(ctx)
	}
	if t.done = true; c.cut || c.killed(ctx) {
		return errCut
	}
	_, err := c.of.world.send(&statement{conn: c, ctx: context.WithoutCancel(ctx), name: how, text: how})
	return err
}

// Release implements core.Conn.
func (c *conn) Release(discard bool) {
	if c.of.world == nil {
		return // a handle is opened
	}
	c.of.world.gate.see()
	if c.txn != nil {
		c.of.world.gate.release(c, discard)
	}
}

// Exec and Query implement core.Querier.
func (t *tx) Exec(ctx context.Context, text string, args ...any) (core.Result, error) {
	if t.done {
		return core.Result{}, sql.ErrTxDone
	}
	return t.conn.Exec(ctx, text, args...)
}

func (t *tx) Query(ctx context.Context, text string, args ...any) (core.Rows, error) {
	if t.done {
		return nil, sql.ErrTxDone
	}
	return t.conn.Query(ctx, text, args...)
}

// Exec implements core.Querier.
func (c *conn) Exec(ctx context.Context, text string, args ...any) (core.Result, error) {
	a, err := c.send(ctx, text, args)
	return core.Result{Affected: a.affected}, err
}

// Query implements core.Querier.
func (c *conn) Query(ctx context.Context, text string, args ...any) (core.Rows, error) {
	a, err := c.send(ctx, text, args)
	if err != nil {
		return nil, err
	}
	return &read{rows: a.rows}, nil
}

func (c *conn) send(ctx context.Context, text string, args []any) (answer, error) {
	name := core.StatementName(ctx)
	if c.of.real != nil {
		return c.ask(ctx, text, args)
	}
	switch c.of.world.gate.see(); {
	case c.cut, c.killed(ctx):
		return answer{}, errCut
	case ctx.Err() != nil:
		return answer{}, context.Cause(ctx)
	case simulated(name):
		return c.of.world.send(&statement{conn: c, ctx: ctx, name: name, text: text, args: args})
	case text == `SELECT 1`:
		return answer{rows: [][]any{{int64(1)}}}, nil
	case strings.HasPrefix(text, `PRAGMA busy_timeout`):
		var millis int
		if _, err := fmt.Sscanf(text, `PRAGMA busy_timeout = %d`, &millis); err == nil {
			c.timeout = time.Duration(millis) * time.Millisecond
		}
		return answer{rows: [][]any{{"5000"}}}, nil
	}
	a, known := admitted[text]
	if !known {
		return a, fmt.Errorf("%w: %s", errUnknown, text)
	}
	return a, nil
}

// simulated reports whether the scheduler runs a statement.
func simulated(name string) bool {
	switch name {
	case "effect", "effect.undo", "savepoint", "release", "rollback to":
		return true
	case "locks.store":
		return false
	}
	of, _, _ := strings.Cut(name, ".")
	return of == "locks" || of == "records" || of == "staged" || of == "operators"
}

// life is one process, from its start until it is killed.
type life struct{ over atomic.Bool }

type lifeKey struct{}

// killed reports whether the process that sends a statement is dead: what is left of it in the bubble reaches nothing any more.
func killed(ctx context.Context) bool {
	l, is := ctx.Value(lifeKey{}).(*life)
	return is && l.over.Load()
}

func (c *conn) killed(ctx context.Context) bool {
	return killed(ctx) || c.of.life != nil && c.of.life.over.Load()
}

// ask asks the real SQLite, and remembers its answer.
func (c *conn) ask(ctx context.Context, text string, args []any) (a answer, err error) {
	rows, err := c.of.real.QueryContext(ctx, text, args...)
	if err != nil {
		return a, err
	}
	a, err = all(rows)
	admitted[text] = a
	return a, err
}

// all reads all rows.
func all(rows *sql.Rows) (a answer, err error) {
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return a, err
	}
	for rows.Next() {
		row := make([]any, len(columns))
		into := make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			return a, err
		}
		a.rows = append(a.rows, row)
	}
	return a, rows.Err()
}
