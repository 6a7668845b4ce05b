package kittest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/kittest/handlers"
	"github.com/holdfast-go/holdfast/internal/test/race"
)

// EveryFault tests an EveryFault on one engine, through one driver.
type EveryFault[Tx, R any] struct {
	Program handlers.Program[Tx, R]
	Run     func(tb holdfasttest.TB, h Handler[Tx], opts ...holdfast.Options) (points int)
}

// Handler is holdfasttest.Handler, for any transaction.
type Handler[Tx any] struct {
	Setup           func(ctx context.Context, kit *holdfasttest.Kit[Tx]) error
	Call            func(ctx context.Context, kit *holdfasttest.Kit[Tx], key string) error
	Invariant       func(ctx context.Context, kit *holdfasttest.Kit[Tx]) error
	OtherKeyRefused bool
}

// SQL is a program on database/sql.
func SQL(texts handlers.SQL) handlers.Program[*sql.Tx, sql.Result] {
	return handlers.Program[*sql.Tx, sql.Result]{
		Exec: (*sql.Tx).ExecContext,
		Begin: func(ctx context.Context, kit *holdfasttest.Kit[*sql.Tx]) (*sql.Tx, error) {
			return kit.Pool.BeginTx(ctx, nil)
		},
		Commit:   func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
		Rollback: func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
		SQL:      texts,
	}
}

// Pgx is a program on a native pool, whose calls have a context of OnNative.
var Pgx = handlers.Program[pgx.Tx, pgconn.CommandTag]{
	Exec: pgx.Tx.Exec,
	Begin: func(ctx context.Context, _ *holdfasttest.Kit[pgx.Tx]) (pgx.Tx, error) {
		return ctx.Value(native{}).(*pgxpool.Pool).Begin(ctx) //nolint:forcetypeassert // a mistake of the test
	},
	Commit:   func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
	Rollback: func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
	SQL:      handlers.Postgres,
}

type native struct{}

// OnNative returns a context with the native pool of a kit, which a handler of every driver does not know.
func OnNative(ctx context.Context, pool *pgxpool.Pool) context.Context {
	return context.WithValue(ctx, native{}, pool)
}

// Brief are cases that run into each part of an EveryFault, in little time.
var Brief = []string{"plain refund", "an unknown COMMIT treated as failure"}

// ByDay returns the cases for a server that need each kind of fault, or Brief under the race detector. The others
// are for the night.
func ByDay() []string {
	if race.Enabled {
		return Brief
	}
	return append([]string{"a call inside the transaction", "a swallowed error", "a write after Do", "a lease without a guard"}, Brief...)
}

// Test runs the cases of these names, or all, side by side.
func (e EveryFault[Tx, R]) Test(t *testing.T, some []string) {
	t.Helper()
	each := func(cases []handlers.Case[Tx], test func(t *testing.T, c handlers.Case[Tx])) {
		for _, c := range cases {
			if some == nil || slices.Contains(some, c.Name) {
				t.Run(c.Name, func(t *testing.T) {
					t.Parallel()
					test(t, c)
				})
			}
		}
	}
	each(e.Program.Right(), e.silent)
	each(e.Program.Mistakes(), e.found)
}

func (e EveryFault[Tx, R]) run(t *testing.T, tb holdfasttest.TB, c handlers.Case[Tx], counted *counter) int {
	t.Helper()
	b := handlers.NewBank(t)
	return e.Run(tb, Handler[Tx]{
		Setup: func(ctx context.Context, kit *holdfasttest.Kit[Tx]) error { return e.Program.Setup(ctx, kit, b) },
		Call: func(ctx context.Context, kit *holdfasttest.Kit[Tx], key string) error {
			counted.begin()
			defer func() { counted.end(b.Payments()) }()
			return c.Call(ctx, kit, b, key)
		},
		Invariant:       func(ctx context.Context, kit *holdfasttest.Kit[Tx]) error { return c.Invariant(ctx, kit.Pool, b) },
		OtherKeyRefused: c.OtherKeyRefused,
	}, holdfast.Options{Observers: []holdfast.Observer{counted.observe}})
}

// silent checks that a handler that is right survives, and compares the number of points with what Holdfast's
// observers, the program and the bank count in the first call: what the driver was given.
func (e EveryFault[Tx, R]) silent(t *testing.T, c handlers.Case[Tx]) {
	t.Helper()
	start := time.Now()
	counted := &counter{}
	got := e.run(t, t, c, counted)
	t.Logf("%d points, %v", got, time.Since(start))
	own, is := map[string]int{"plain refund": 1, "staged refund with provider": 2, "limits": 1, "a swallowed error": 1}[c.Name] // statements of the program
	if !is {
		return // its lease is renewed in the background
	}
	if want := counted.n + own; got != want {
		t.Errorf("%d points, and %d were counted", got, want)
	}
}

// failing records that EveryFault has ended a test.
type failing struct {
	*testing.T
	said string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// found checks that the line of a mistake is named.
func (e EveryFault[Tx, R]) found(t *testing.T, c handlers.Case[Tx]) {
	t.Helper()
	start := time.Now()
	tb := &failing{T: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.run(t, tb, c, &counter{})
	}()
	<-ended
	want := handlers.Line(c.Name)
	if c.Name == "a COMMIT by hand" && e.Program.SQL.Commits {
		want = "outcome unknown" // without a fault: no point is to blame
	}
	if want == "" || !strings.Contains(tb.said, want) {
		t.Errorf("%q, want %s", tb.said, want)
	}
	t.Logf("%v: %s", time.Since(start), tb.said)
}

// counter counts what is given to the driver in the first call.
type counter struct {
	mu    sync.Mutex
	calls int
	on    bool
	n     int
}

func (c *counter) observe(_ context.Context, s holdfast.Statement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// A statement that travels with the one before it takes no further time.
	if c.on && s.Name != "begin" && s.Name != "rollback" && s.Duration > 0 {
		c.n++
	}
}

func (c *counter) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	c.on = c.calls == 1
}

func (c *counter) end(outside int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.on {
		c.n += outside
	}
	c.on = false
}

// Fill executes an operation, which must be new.
func Fill[Tx any](ctx context.Context, kit *holdfasttest.Kit[Tx]) error {
	store, err := idempotency.New(ctx, kit.DB)
	if err != nil {
		return err
	}
	r, err := idempotency.Do(ctx, store, idempotency.Op{Owner: kit.Owner, Name: "fill", Key: "k", Request: "r"}, func(context.Context, Tx) (string, error) { return "", nil })
	if err == nil && r.Outcome != idempotency.Executed {
		err = errors.New("a record of the run before is there")
	}
	return err
}
