//go:build unix

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/outbox"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// databases are those for sessions on one engine.
type databases struct {
	engine dbtest.Engine
	mu     sync.Mutex
	model  string // SQLite: the URL of a database of which each session gets a copy
}

func newDatabases(t *testing.T, e dbtest.Engine) *databases {
	t.Helper()
	d := &databases{engine: e}
	if e == dbtest.SQLite {
		d.model = dbtest.DSN(t, e)
		sampleData(t, d.model)
	}
	return d
}

// open returns the URL of a new database with sampleData.
func (d *databases) open(t *testing.T) string {
	t.Helper()
	if d.engine != dbtest.SQLite {
		url := dbtest.DSN(t, d.engine)
		sampleData(t, url)
		return url
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	file := filepath.Join(t.TempDir(), "shop.db")
	must(t, dbtest.OpenSQL(t, d.model), `VACUUM INTO '`+file+`'`)
	return "sqlite://" + file
}

func must(t *testing.T, pool *sql.DB, queries ...string) {
	t.Helper()
	for _, q := range queries {
		if _, err := pool.ExecContext(context.WithoutCancel(t.Context()), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
}

// sampleData fills a database with what a shop of some days has: leases that are held, a fair lock, records, one of
// them expired, operations that are unknown, a message, a pass of the reaper, the audit's row of an
// intervention, and a proposal. They last as long as the test.
func sampleData(t *testing.T, url string) {
	t.Helper()
	ctx, pool := t.Context(), dbtest.OpenSQL(t, url)
	if err := migrations.Up(ctx, pool); err != nil {
		t.Fatal(err)
	}
	db, err := holdfastsql.Open(ctx, pool)
	if err != nil {
		t.Fatal(err)
	}
	db = access.WithOwners(db, core.AnyOwner)
	short, err := idempotency.New(ctx, db, idempotency.Options{ResultTTL: 50 * time.Millisecond, KeyTTL: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	record := func(store *idempotency.Store[*sql.Tx], key string) {
		t.Helper()
		op := idempotency.Op{Owner: "shop-7", Name: "refund", Key: key, Request: key}
		if _, err := idempotency.Do(ctx, store, op, func(context.Context, *sql.Tx) (string, error) { return "done", nil }); err != nil {
			t.Fatal(err)
		}
	}
	do := func(args ...string) {
		t.Helper()
		if code, out, err := command(t, append(args, "-dsn", url)...); code != exitOK {
			t.Fatalf("%v: status %d, %s%s", args, code, out, err)
		}
	}
	record(short, "1")
	time.Sleep(100 * time.Millisecond) // twice its life
	do("reap")
	record(short, "2")
	store, err := idempotency.New(ctx, db)
	if err != nil {
		t.Fatal(err)
	}
	record(store, "3")
	payouts(t, store, "42/1", "42/2")
	message(t, db)
	locks(t, db)
	why := []string{"--owner", "shop-7", "--by", "olga", "--reason", "ticket 11"}
	do(append(why, "locks", "release", "--yes", "--key", "order/41")...)
	do(append(why, "ops", "resolve", "--name", "payout", "--key", "42/2", "--as", "step-not-done", "--propose")...)
}

func payouts(t *testing.T, store *idempotency.Store[*sql.Tx], keys ...string) {
	t.Helper()
	runner, err := staged.New(store, staged.Workflow[int, string, *sql.Tx]{
		Name: "payout",
		Run: func(ctx context.Context, r *staged.Run[*sql.Tx], _ int) (string, error) {
			return staged.Call(ctx, r, staged.ExternalCall[string]{Step: "pay"}, func(context.Context, string) (string, error) {
				return "", errors.New("the line is dead")
			})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if _, err := runner.Do(t.Context(), idempotency.Op{Owner: "shop-7", Name: "payout", Key: key}, 1250); !errors.Is(err, idempotency.ErrUnknown) {
			t.Fatal(err)
		}
	}
}

func message(t *testing.T, db *holdfast.DB[*sql.Tx]) {
	t.Helper()
	box, err := outbox.New(t.Context(), db, "refunds")
	if err != nil {
		t.Fatal(err)
	}
	err = db.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		return box.Write(ctx, tx, outbox.Message{Owner: "shop-7", Key: "order/42", Topic: "refunds.made", Body: []byte("12.50")})
	})
	if err != nil {
		t.Fatal(err)
	}
}

func locks(t *testing.T, db *holdfast.DB[*sql.Tx]) {
	t.Helper()
	all, err := sqllock.New(t.Context(), db, sqllock.Options{Holder: "worker-3", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = all.Close(context.WithoutCancel(t.Context())) })
	for _, key := range []string{"order/41", "order/42"} {
		if _, err := all.For("shop-7").Acquire(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := fairlock.New(all).Acquire(t.Context(), "report"); err != nil {
		t.Fatal(err)
	}
}

// killedJob leaves a job of once unknown.
func killedJob(s *shell) {
	if out, code, err := s.bash(`holdfast once settle/2026-11-24 -- sh -c 'kill -9 $$'`, nil); code != exitUnknown || err != nil {
		s.Fatal(code, err, out)
	}
}

// looseTable makes a table whose key does not keep twins apart.
func looseTable(s *shell) {
	must(s.T, dbtest.OpenSQL(s.T, s.url), `CREATE TABLE refunds (id INTEGER PRIMARY KEY, refund_no TEXT, amount INTEGER)`)
}

// ownTables makes tables of a program, on PostgreSQL.
func ownTables(s *shell) {
	must(s.T, dbtest.OpenSQL(s.T, s.url),
		`CREATE TABLE sessions (id bigint PRIMARY KEY, expires_at bigint)`, `CREATE INDEX ON sessions (expires_at, id)`,
		`CREATE TABLE audit (id bigint PRIMARY KEY, made_at timestamptz)`, `CREATE INDEX ON audit (made_at, id)`)
}

// accountOfBen gives ben an account of his own, with the rights of an operator, on PostgreSQL.
func accountOfBen(s *shell) {
	dbtest.Needs(s.T, dbtest.Postgres, dbtest.Users)
	_, s.others["ben"] = accountOf(s.T, s.url, "operator")
}

// blockedSession makes a session that waits for another one, on PostgreSQL.
func blockedSession(s *shell) {
	pool, ctx := dbtest.OpenSQL(s.T, s.url), context.WithoutCancel(s.Context())
	begin := func() (tx *sql.Tx, pid int) {
		tx, err := pool.BeginTx(ctx, nil)
		if err == nil {
			err = tx.QueryRowContext(ctx, `SELECT pg_backend_pid()`).Scan(&pid)
		}
		if err != nil {
			s.Fatal(err)
		}
		return tx, pid
	}
	const q = `SELECT id FROM holdfast_floor WHERE id = 1 FOR UPDATE`
	holder, _ := begin()
	if _, err := holder.ExecContext(ctx, q); err != nil {
		s.Fatal(err)
	}
	waiter, pid := begin()
	ended := make(chan error, 1)
	go func() {
		_, err := waiter.ExecContext(ctx, q)
		ended <- errors.Join(err, waiter.Rollback())
	}()
	s.Cleanup(func() {
		if err := errors.Join(holder.Rollback(), <-ended); err != nil {
			s.Error(err)
		}
	})
	dbtest.Eventually(s.T, "it waits", func() bool {
		var waits bool
		err := pool.QueryRowContext(ctx, `SELECT cardinality(pg_blocking_pids($1)) > 0`, pid).Scan(&waits)
		return err == nil && waits
	})
}

// TestDocsCommandsFindsFaults plants faults in pages.
func TestDocsCommandsFindsFaults(t *testing.T) {
	t.Parallel()
	tests, targets := map[string]bool{"TestLocks": true}, map[string]bool{"cluster": true}
	const line = "```\nkubectl exec db-0 -- holdfast reap\n```\n"
	for _, page := range []string{
		line,
		"```\nholdfast audit export | jq .by\n```\n",
		"```\nssh db holdfast reap\n```\n",
		"<!-- not run here: TestLocks -->\n\n" + line,
		"<!-- not run here: TestLocks -->\n```\nkubectl get pods\n```\n",
		"<!-- not run here: TestLocks -->\n",
		"<!-- not run here: TestNotThere -->\n" + line,
		"<!-- not run here: make nothing -->\n" + line,
		"<!-- not run here: no -->\n" + line,
	} {
		if unmarked(page, tests, targets) == nil {
			t.Errorf("no fault: %s", page)
		}
	}
	for _, page := range []string{
		"<!-- not run here: TestLocks -->\n" + line,
		"<!-- not run here: it needs a cluster, as make cluster does -->\n" + line,
		"1. Do\n   <!-- not run here: there is no second machine -->\n   ```\n   ssh db holdfast reap\n   ```\n",
		"```\nX=1 holdfast version --by 'a | b' | tee x && source <(holdfast version)  # psql; psql\n```\n",
		"```\nkubectl get pods\n```\n",
	} {
		if err := errors.Join(unmarked(page, tests, targets)...); err != nil {
			t.Errorf("%v: %s", err, page)
		}
	}
	if p := sessionsOf("x.md", "<!-- not run here: TestLocks -->\n"+line); p != nil {
		t.Errorf("would run %+v", p)
	}
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e == dbtest.SQLite {
			wrongLines(t, newDatabases(t, e))
		}
	})
}

// wrongLines runs lines that fail, or that do not do what their page shows.
func wrongLines(t *testing.T, d *databases) {
	t.Helper()
	for i, lines := range []string{
		"holdfast locks list --colour",
		"holdfast locks release --yes --key none --by ada --reason x",
		"holdfast lokcs list | cat",
		"source <(holdfast lokcs list)",
		"holdfast ops confirm --id 60929c29… --by ben",
		"holdfast lock settlement -- ./settle.sh > /nowhere/at/all",
		"holdfast console --addr 0.0.0.0:0",
		"holdfast once k -- ./relay --forever",
		"$ holdfast locks queues\nno lines",
		"$ holdfast locks list\nKEY  HOLDER",
		"$ holdfast audit verify\nrows 1, as written",
		"$ holdfast audit verify\nrows 1, as written\nhead 1 5f0c0b6e…\nand more",
		"$ holdfast migrate version\nversion 1 of 1 or so",
		"$ holdfast audit verify\nrows 1, as written\nhead 1 5f0c0b6e…\n$ holdfast audit verify --expect 60929c29…",
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			faults := 0
			for _, p := range sessionsOf("x.md", "```\n"+lines+"\n```\n") {
				faults += len(d.run(t, p))
			}
			if faults != 1 {
				t.Errorf("%d faults in %s", faults, lines)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		page := "```\n$ holdfast audit verify\nrows 1, as written\nhead 1 5f0c0b6e…\n$ holdfast audit verify --expect 5f0c0b6e…   # …\n$ holdfast locks list --watch\n```\n"
		for _, p := range sessionsOf("x.md", page) {
			if err := errors.Join(d.run(t, p)...); err != nil {
				t.Error(strings.TrimSpace(err.Error()))
			}
		}
	})
}
