package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/conformance"
	"github.com/holdfast-go/holdfast/internal/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// TestPoolOfOne: one connection is enough. While a transaction has it, guards
// work, for they join it; all else waits: an acquire within the transaction until
// its context ends, and renewals, so that a lease's context ends in the course of
// a transaction longer than its TTL, which its guard lets commit nevertheless.
func TestPoolOfOne(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine)+" sql", func(t *testing.T) {
			t.Parallel()
			poolOfOne(conformance.New(t, oneConn(), engine))
		})
		if engine == dbtest.Postgres {
			t.Run("postgres pgx", func(t *testing.T) {
				t.Parallel()
				poolOfOne(conformance.New(t, new(wire).pgx(), engine))
			})
		}
	}
}

// oneConn is a handle whose pools have one connection.
func oneConn() conformance.Handle[*sql.Tx] {
	h := conformance.SQL()
	h.Open = func(tb testing.TB, dsn string, opts ...holdfast.Option) conformance.Pool[*sql.Tx] {
		tb.Helper()
		pool := dbtest.OpenSQL(tb, dsn)
		pool.SetMaxOpenConns(1)
		return conformance.SQLPool(tb, pool, opts...)
	}
	return h
}

func poolOfOne[Tx any](e *conformance.Env[Tx]) {
	const ttl = 3 * time.Second
	l, err := sqllock.New(e.Ctx, e.DB, sqllock.Options{TTL: ttl})
	if err != nil {
		e.Fatal(err)
	}
	lease, err := l.Acquire(e.Ctx, "long")
	if err != nil {
		e.Fatal(err)
	}
	renewed, err := l.Acquire(e.Ctx, "renewed", sqllock.WithTTL(time.Minute))
	if err != nil {
		e.Fatal(err)
	}
	err = e.DB.InTx(e.Ctx, holdfast.TxOptions{}, func(ctx context.Context, tx Tx) error {
		if err := l.Guard(ctx, tx, lease.Term(), renewed.Term()); err != nil {
			return err
		}
		short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		if _, err := l.Acquire(short, "within"); !errors.Is(err, context.DeadlineExceeded) {
			e.Errorf("an acquire while the only connection is out: %v", err)
		}
		<-lease.Context().Done() // nothing could renew it
		return e.Effect(ctx, tx, "long")
	})
	if err != nil {
		e.Fatal(err)
	}
	e.WantOnce("long")
	if cause := context.Cause(lease.Context()); !errors.Is(cause, sqllock.ErrLost) {
		e.Errorf("the lease's context ended with %v", cause)
	}
	if err := renewed.Context().Err(); err != nil {
		e.Errorf("a lease of a minute ended: %v", err)
	}
	again, err := l.Acquire(e.Ctx, "long")
	if err != nil {
		e.Fatal(err)
	}
	for _, err := range []error{again.Release(e.Ctx), renewed.Release(e.Ctx), l.Close(e.Ctx)} {
		if err != nil {
			e.Error(err)
		}
	}
}
