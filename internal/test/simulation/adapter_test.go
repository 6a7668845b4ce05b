package simulation

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // answers what is no statement of leases, once

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/sqllock"
)

// noTx is the type of transactions: leases have none.
type noTx struct{}

type (
	db     = holdfast.DB[noTx]
	locker = sqllock.Locker[noTx]
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
		if a.db, err = access.Open(tb.Context(), &db{}, core.Adapter[noTx](a), []holdfast.Options{{SingleOwner: true}}); err != nil {
			tb.Fatal(err)
		}
		l, err := sqllock.New(tb.Context(), a.db)
		if err != nil {
			tb.Fatal(err)
		}
		if err := l.Close(tb.Context()); err != nil {
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
}

var _ core.Adapter[noTx] = (*adapter)(nil)

// Acquire implements core.Adapter.
func (a *adapter) Acquire(ctx context.Context) (core.Conn[noTx], error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return &conn{of: a}, nil
}

// Exec, Query, Join and Rollback implement core.Adapter. Leases use none of them.
func (*adapter) Exec(context.Context, string, ...any) (core.Result, error) {
	return core.Result{}, errUnknown
}
func (*adapter) Query(context.Context, string, ...any) (core.Rows, error) { return nil, errUnknown }
func (*adapter) Join(noTx) (core.Querier, error)                          { return nil, core.ErrNoTx }
func (*adapter) Rollback(context.Context, noTx) error                     { return core.ErrNoTx }

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
	of  *adapter
	cut bool // by a fault
}

// Native implements core.Native.
func (c *conn) Native() any { return &c.of.same }

// Raw implements core.Conn.
func (c *conn) Raw(f func(any) error) error { return f(&c.of.same) }

// Begin, Commit, Rollback and Release implement core.Conn.
func (*conn) Begin(context.Context, core.TxOptions) (noTx, error) { return noTx{}, errUnknown }
func (*conn) Commit(context.Context, noTx) error                  { return errUnknown }
func (*conn) Rollback(context.Context, noTx) error                { return errUnknown }
func (*conn) Release(bool)                                        {}

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
	switch {
	case c.of.real != nil:
		return c.ask(ctx, text, args)
	case c.cut:
		return answer{}, errCut
	case ctx.Err() != nil:
		return answer{}, context.Cause(ctx)
	case strings.HasPrefix(name, "locks.") && name != "locks.store":
		return c.of.world.send(&statement{conn: c, ctx: ctx, name: name, text: text, args: args})
	case text == `SELECT 1`:
		return answer{rows: [][]any{{int64(1)}}}, nil
	case strings.HasPrefix(text, `PRAGMA busy_timeout`):
		return answer{rows: [][]any{{"5000"}}}, nil
	}
	a, known := admitted[text]
	if !known {
		return a, fmt.Errorf("%w: %s", errUnknown, text)
	}
	return a, nil
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
