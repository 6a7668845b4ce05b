package simulation

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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

// processes are the handles of the simulated processes. They are opened once: a handle has no goroutine and no
// clock, so all schedules can use it, one after the other.
var processes [3]*adapter

// admitted are the answers of a real SQLite to the statements that open a handle and a Locker.
var admitted = map[string]answer{}

// open opens the handles on a real SQLite.
func open(tb testing.TB) {
	tb.Helper()
	if processes[0] != nil {
		return
	}
	inMemory := memory(tb)
	for i := range processes {
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
		processes[i] = a
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

// statement is a statement that waits for the scheduler.
type statement struct {
	conn   *conn
	ctx    context.Context
	name   string
	text   string
	args   []any
	of     string // stable name: see key
	answer answer
	err    error
	ran    bool // at the store: what it waits for is that its answer arrives
	done   chan struct{}
}

type callerKey struct{}

// key names a statement in the same way in every run of a schedule: the process, the caller, the statement, and
// its rows; not the ids of attempts, which are random.
func (s *statement) key() string {
	if s.of == "" {
		caller, known := s.ctx.Value(callerKey{}).(int)
		if !known {
			caller = -1 // in the background
		}
		var rows []string
		for _, a := range s.args {
			if b, is := a.([]byte); is && len(b) > 0 && b[0] == 'l' && len(b) == rowLength {
				rows = append(rows, string(b[1:]))
			}
		}
		s.of = fmt.Sprintf("p%d %d %s%s", s.conn.of.id, caller, strings.TrimPrefix(s.name, "locks."), sortedOnce(rows))
	}
	return s.of
}

// gate is where statements wait.
type gate struct {
	mu      sync.Mutex
	waiting []*statement
	open    bool // statements run at once: the schedule is over
	sent    int  // statements so far
}

// send waits until the scheduler has run a statement, or has not.
func (w *world) send(s *statement) (answer, error) {
	w.gate.mu.Lock()
	w.gate.sent++
	if w.gate.open {
		defer w.gate.mu.Unlock()
		w.run(s)
		return s.answer, s.err
	}
	s.done = make(chan struct{})
	w.gate.waiting = append(w.gate.waiting, s)
	w.gate.mu.Unlock()
	<-s.done
	return s.answer, s.err
}

// run runs a statement at the store.
func (w *world) run(s *statement) {
	a, known := w.store.run(s.name, s.text, s.args, micros(time.Now()))
	s.answer, s.ran = a, true
	if !known {
		s.err = fmt.Errorf("%w: %s", errUnknown, s.text)
		w.violatef("unknown statement %s: %s", s.name, s.text)
	}
}

// sortedOnce returns sorted names, each once, with a space before each.
func sortedOnce(names []string) string {
	slices.Sort(names)
	var b strings.Builder
	for _, n := range slices.Compact(names) {
		b.WriteString(" " + n)
	}
	return b.String()
}
