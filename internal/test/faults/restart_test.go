package faults_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// stale is how many connections of a pool die with the server.
const stale = 20

// Rule: after a restart every connection of the pool is dead, and the next operation still
// works: work that a dead connection did not do is done on another one.
func TestServerRestart(t *testing.T) {
	t.Parallel()
	t.Run("cut", func(t *testing.T) {
		t.Parallel()
		everyMode(t, allCut[*sql.Tx], allCut[pgx.Tx], allCut[*sqlx.Tx])
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		server := dbtest.OwnPostgres(t, "-c fsync=off")
		for name, rule := range map[string]func(t *testing.T){
			"sql": func(t *testing.T) { restarted(t, server, fullSQL()) },
			"pgx": func(t *testing.T) { restarted(t, server, fullPgx()) },
		} {
			t.Run(name, rule) // one after the other, because they share the server
		}
	})
}

// allCut does to the client what a restart does: its connections end.
func allCut[Tx any](w *world[Tx]) {
	for _, a := range w.asks(idempotency.DefaultWait) {
		key := w.key(a.name)
		w.fill(3)
		w.proxy.CutAll()
		w.want(a, key, idempotency.Executed)
	}
	key := w.key("InTx")
	w.fill(3)
	w.proxy.CutAll()
	if err := w.DB.InTx(w.Ctx, func(ctx context.Context, tx Tx) error { return w.effect(ctx, tx, key) }); err != nil {
		w.Errorf("InTx: %v", err)
	}
	w.WantOnce(key)
}

// fill opens n connections at once and returns them to the pool.
func (w *world[Tx]) fill(n int) {
	w.Helper()
	open := make([]Tx, n)
	for i := range open {
		var err error
		for range 2 * stale { // they may be dead
			if open[i], err = w.Begin(w.Ctx, sql.LevelDefault); err == nil {
				break
			}
		}
		if err != nil {
			w.Fatal(err)
		}
	}
	for _, tx := range open {
		if err := w.End(w.Ctx, tx, false); err != nil {
			w.Fatal(err)
		}
	}
}

// fullSQL and fullPgx return handles whose pools keep their connections.
func fullSQL() conformance.Handle[*sql.Tx] {
	h := conformance.SQL()
	h.Open = func(tb testing.TB, dsn string, opts ...holdfast.Options) conformance.Pool[*sql.Tx] {
		pool := dbtest.OpenSQL(tb, dsn)
		pool.SetMaxOpenConns(stale)
		pool.SetMaxIdleConns(stale)
		return conformance.SQLPool(tb, pool, opts...)
	}
	return h
}

func fullPgx() conformance.Handle[pgx.Tx] {
	return conformance.With(conformance.Pgx(), "pool_max_conns=20", dbtest.Postgres)
}

func restarted[Tx any](t *testing.T, server *dbtest.PostgresServer, h conformance.Handle[Tx]) {
	audit := dbtest.OpenSQL(t, server.URL)
	audit.SetMaxIdleConns(-1) // the audit pool is not under test
	e := &conformance.Env[Tx]{T: t, Engine: dbtest.Postgres, DSN: server.URL, Handle: h, SQL: audit, Ctx: t.Context()}
	e.Migrate()
	e.Must(`CREATE TABLE IF NOT EXISTS effects (k bytea NOT NULL, who VARCHAR(64) NOT NULL)`)
	e.Must(`CREATE TABLE IF NOT EXISTS refunds (refund_no TEXT NOT NULL UNIQUE, amount BIGINT NOT NULL)`)
	e.Pool = h.Open(t, e.DSN)
	w := &world[Tx]{Env: e}
	for _, a := range w.asks(idempotency.DefaultWait) {
		if testing.Short() && a.name == "row" {
			continue
		}
		w.fill(stale)
		server.Restart(t)
		w.want(a, w.key(a.name+" used a moment ago"), idempotency.Executed)
		w.fill(stale)
		time.Sleep(1200 * time.Millisecond)
		server.Restart(t)
		w.want(a, w.key(a.name+" idle"), idempotency.Executed)
	}
	// A crash in the middle: the function's own connection dies too.
	first := true
	a := w.record(idempotency.DefaultWait, func(ctx context.Context, tx Tx) error {
		if first {
			first = false
			server.Restart(t)
		}
		return w.Effect(ctx, tx, w.key("crash, the other effect"))
	})
	key := w.key("crash")
	if _, err := a.do(w.Ctx, key); err == nil || errors.Is(err, holdfast.ErrUnknown) {
		w.Errorf("a restart before COMMIT: %v", err)
	}
	w.insist(a, key)
	w.WantOnce(w.key("crash, the other effect"))
}
