package tracetest

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/sqllock"
)

// Secret is part of every key, owner, holder, request and result that Everything uses, and so
// of many errors.
const Secret = "s3cr3t"

// world is a program that uses all of Holdfast.
type world struct {
	testing.TB
	ctx  context.Context
	kit  *holdfasttest.Kit[*sql.Tx]
	lock *sqllock.Locker[*sql.Tx]
	ops  *idempotency.Store[*sql.Tx]
}

// Everything makes each call that a Tracer observes, on SQLite, with good and bad outcomes.
func Everything(tb testing.TB, opts ...holdfast.Options) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 3*time.Minute)
	defer cancel()
	w := &world{TB: tb, ctx: ctx, kit: holdfasttest.SQLite(tb, opts...)}
	w.kit.DB = access.WithOwners(w.kit.DB, core.AnyOwner)
	for _, table := range []string{
		`CREATE TABLE refunds (refund_no TEXT NOT NULL UNIQUE, cents INTEGER NOT NULL)`,
		`CREATE TABLE accounts (id TEXT NOT NULL PRIMARY KEY, cents INTEGER NOT NULL, version INTEGER NOT NULL)`,
	} {
		_, err := w.kit.Pool.ExecContext(ctx, table)
		w.want(err, nil)
	}
	var err error
	w.lock, err = sqllock.New(ctx, w.kit.DB, sqllock.Options{Holder: Secret})
	w.want(err, nil)
	w.ops, err = idempotency.New(ctx, w.kit.DB, idempotency.Options{Wait: time.Minute})
	w.want(err, nil)
	w.leases()
	w.lost()
	w.lines()
	w.rows()
	w.operations()
	w.records()
	w.staged()
	w.outbox()
	w.versions()
	w.registers()
	w.limits()
	w.reaper()
	w.want(w.lock.Close(ctx), nil)
}

// want fails unless err is the expected error.
func (w *world) want(err, want error) {
	w.Helper()
	if !is(err, want) {
		w.Fatalf("got %v, want %v", err, want)
	}
}

// soon returns a context that ends soon.
func (w *world) soon() context.Context {
	ctx, cancel := context.WithTimeout(w.ctx, 20*time.Millisecond)
	w.Cleanup(cancel)
	return ctx
}

// in runs f in a transaction of the program.
func (w *world) in(f func(tx *sql.Tx)) {
	w.Helper()
	tx, err := w.kit.Pool.BeginTx(w.ctx, nil)
	w.want(err, nil)
	f(tx)
	if err := tx.Commit(); err != nil && !is(err, sql.ErrTxDone) { // Holdfast has rolled it back
		w.Fatal(err)
	}
}
