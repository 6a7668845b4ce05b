package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// TestPoolOfOne checks that one connection is enough. While a transaction uses it, guards work
// because they join the transaction. Everything else waits: an acquire within the transaction
// waits until its context ends, and renewals wait. The lease's context therefore ends during a
// transaction longer than its TTL, but the guard still lets that transaction commit.
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
	h.Open = func(tb testing.TB, dsn string, opts ...holdfast.Options) conformance.Pool[*sql.Tx] {
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
	renewed, err := l.Acquire(e.Ctx, "renewed", sqllock.AcquireOptions{TTL: time.Minute})
	if err != nil {
		e.Fatal(err)
	}
	err = e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
		if err := l.Guard(ctx, tx, lease.Term(), renewed.Term()); err != nil {
			return err
		}
		short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		if _, err := l.Acquire(short, "within"); !errors.Is(err, context.DeadlineExceeded) {
			e.Errorf("an acquire while the only connection is out: %v", err)
		}
		<-lease.Context().Done() // it could not be renewed
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
