package idempotency_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastpgx"
	"github.com/holdfast-go/holdfast/adapters/holdfastsqlx"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// TestPoolIsTaken checks that a call which gets no connection says that the pool has none, and, inside a
// function with its own transaction, that the two calls need two.
func TestPoolIsTaken(t *testing.T) {
	t.Parallel()
	conformance.Handles(t, conformance.Suite{
		SQL: func(t *testing.T, h conformance.Handle[*sql.Tx]) {
			t.Helper()
			h.Open = func(tb testing.TB, dsn string, opts ...holdfast.Options) conformance.Pool[*sql.Tx] {
				tb.Helper()
				pool := dbtest.OpenSQL(tb, dsn)
				pool.SetMaxOpenConns(1)
				return conformance.SQLPool(tb, pool, opts...)
			}
			conformance.Run(t, h, poolIsTaken[*sql.Tx])
		},
		SQLX: func(t *testing.T, h conformance.Handle[*sqlx.Tx]) {
			t.Helper()
			h.Open = func(tb testing.TB, dsn string, opts ...holdfast.Options) conformance.Pool[*sqlx.Tx] {
				tb.Helper()
				name, _, err := dbtest.DriverDSN(dsn)
				if err != nil {
					tb.Fatal(err)
				}
				pool := sqlx.NewDb(dbtest.OpenSQL(tb, dsn), name)
				pool.SetMaxOpenConns(1)
				db, err := holdfastsqlx.Open(tb.Context(), pool, conformance.Single(opts))
				if err != nil {
					tb.Fatal(err)
				}
				return conformance.Pool[*sqlx.Tx]{DB: db, Begin: func(ctx context.Context, _ sql.IsolationLevel) (*sqlx.Tx, error) { return pool.BeginTxx(ctx, nil) }}
			}
			conformance.Run(t, h, poolIsTaken[*sqlx.Tx])
		},
		Pgx: func(t *testing.T, h conformance.Handle[pgx.Tx]) {
			t.Helper()
			h.Open = func(tb testing.TB, dsn string, opts ...holdfast.Options) conformance.Pool[pgx.Tx] {
				tb.Helper()
				config, err := pgxpool.ParseConfig(dsn)
				if err != nil {
					tb.Fatal(err)
				}
				config.MaxConns = 1
				pool, err := pgxpool.NewWithConfig(tb.Context(), config)
				if err != nil {
					tb.Fatal(err)
				}
				tb.Cleanup(pool.Close)
				db, err := holdfastpgx.Open(tb.Context(), pool, conformance.Single(opts))
				if err != nil {
					tb.Fatal(err)
				}
				return conformance.Pool[pgx.Tx]{DB: db, Begin: func(ctx context.Context, _ sql.IsolationLevel) (pgx.Tx, error) { return pool.Begin(ctx) }}
			}
			conformance.Run(t, h, poolIsTaken[pgx.Tx])
		},
	})
}

func poolIsTaken[Tx any](e *conformance.Env[Tx]) {
	s := e.Store(idempotency.Options{})
	leases, err := sqllock.New(e.Ctx, e.DB)
	e.Check(err)
	e.Cleanup(func() { _ = leases.Close(context.Background()) })
	fair := fairlock.New(leases)
	none := func(context.Context, Tx) (string, error) { return "", nil }
	keys := 0
	key := func(name string) idempotency.Op { keys++; return conformance.Op(fmt.Sprint(name, keys)) }
	inner := map[string]func(ctx context.Context) error{
		"Do":              func(ctx context.Context) error { _, err := idempotency.Do(ctx, s, key("inner"), none); return err },
		"InTx":            func(ctx context.Context) error { return e.DB.InTx(ctx, func(context.Context, Tx) error { return nil }) },
		"Acquire":         func(ctx context.Context) error { _, err := leases.Acquire(ctx, "a"); return err },
		"TryAcquire":      func(ctx context.Context) error { _, err := leases.TryAcquire(ctx, "a"); return err },
		"fair Acquire":    func(ctx context.Context) error { _, err := fair.Acquire(ctx, "a"); return err },
		"fair TryAcquire": func(ctx context.Context) error { _, err := fair.TryAcquire(ctx, "a"); return err },
		"Lookup": func(ctx context.Context) error {
			_, err := idempotency.Lookup[string](ctx, s, conformance.Op("x"))
			return err
		},
	}
	// A context that ended for itself, with a connection free.
	for name, call := range inner {
		ended, cancel := context.WithCancel(e.Ctx)
		cancel()
		if err := call(ended); !errors.Is(err, context.Canceled) || errors.Is(err, holdfast.ErrPoolExhausted) {
			e.Errorf("%s: %v", name, err)
		}
	}
	outer := map[string]func(f func(ctx context.Context) error) error{
		"Do": func(f func(ctx context.Context) error) error {
			_, err := idempotency.Do(e.Ctx, s, key("outer"), func(ctx context.Context, _ Tx) (string, error) { return "", f(ctx) })
			return err
		},
		"InTx": func(f func(ctx context.Context) error) error {
			return e.DB.InTx(e.Ctx, func(ctx context.Context, _ Tx) error { return f(ctx) })
		},
		"DoTx": func(f func(ctx context.Context) error) error {
			return e.DB.InTx(e.Ctx, func(_ context.Context, tx Tx) error {
				_, err := idempotency.DoTx(e.Ctx, s, tx, key("outer"), func(ctx context.Context, _ Tx) (string, error) { return "", f(ctx) })
				return err
			})
		},
		"": func(f func(ctx context.Context) error) error { // outside
			return e.DB.InTx(e.Ctx, func(context.Context, Tx) error { return f(e.Ctx) })
		},
	}
	for without, within := range outer {
		for name, call := range inner {
			err := within(func(ctx context.Context) error {
				short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
				return call(short)
			})
			if !errors.Is(err, holdfast.ErrPoolExhausted) || !errors.Is(err, context.DeadlineExceeded) || holdfast.Code(err) != "pool-exhausted" {
				e.Errorf("%s in %q: %v", name, without, err)
			} else if strings.Contains(err.Error(), "inside the function") != (without != "") {
				e.Errorf("%s in %q: %v", name, without, err)
			}
		}
	}
}
