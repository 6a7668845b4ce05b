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

// Rule: wherever its context is cancelled, a call soon returns the context's error, leaves no
// partial work, keeps no connection, and leaves no statement that still waits on the server.
func TestCancelledContextEverywhere(t *testing.T) {
	t.Parallel()
	t.Run("sql", func(t *testing.T) { t.Parallel(); conformance.Run(t, conformance.SQL(), cancelled[*sql.Tx]) })
	t.Run("pgx", func(t *testing.T) { t.Parallel(); conformance.Run(t, conformance.Pgx(), cancelled[pgx.Tx]) })
	t.Run("sqlx", func(t *testing.T) { t.Parallel(); conformance.Run(t, conformance.SQLX(), cancelled[*sqlx.Tx]) })
}

func cancelled[Tx any](e *conformance.Env[Tx]) {
	w := &world[Tx]{Env: e}
	e.Must(`INSERT INTO effects (k, who) VALUES ($1, 'nobody')`, []byte("row"))
	cancelledBefore(w)
	cancelledClaim(w)
	cancelledStatement(w)
	cancelledFollower(w)
	if w.InnoDB() {
		naiveCancel(w)
	}
}

// cancel cancels a call once ready reports that it has reached its place, and checks the result.
func (w *world[Tx]) cancel(what string, a ask, key string, ready func() bool) {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Ctx)
	defer cancel()
	answer := make(chan error, 1)
	go func() {
		_, err := a.do(ctx, key)
		answer <- err
	}()
	w.Eventually(what+": the call comes to its place", ready)
	start := time.Now()
	cancel()
	err := <-answer
	w.within(start, 0)
	if !errors.Is(err, context.Canceled) || errors.Is(err, holdfast.ErrUnknown) {
		w.Errorf("%s: got %v, want context.Canceled", what, err)
	}
	w.Eventually(what+": nobody waits on the server", func() bool { return w.waiters() == 0 })
	w.within(start, 2*time.Second)
}

func cancelledBefore[Tx any](w *world[Tx]) {
	ctx, cancel := context.WithCancel(w.Ctx)
	cancel()
	for _, a := range w.asks(idempotency.DefaultWait) {
		w.ran.Store(0)
		if _, err := a.do(ctx, "before "+a.name); !errors.Is(err, context.Canceled) || w.ran.Load() != 0 {
			w.Errorf("before: %s: %v, the function ran %d times", a.name, err, w.ran.Load())
		}
		w.want(a, "before "+a.name, idempotency.Executed)
	}
}

// holder runs an operation on key up to the end of its function, as if in another process.
// release ends it with the given error.
func (w *world[Tx]) holder(a func(more func(context.Context, Tx) error) ask, key string) (release func(error)) {
	held, let, done := make(chan struct{}), make(chan error), make(chan struct{})
	holding := a(func(context.Context, Tx) error {
		close(held)
		return <-let
	})
	go func() {
		defer close(done)
		_, _ = holding.do(w.Ctx, key)
	}()
	<-held
	return func(err error) { let <- err; <-done }
}

// other returns a world with a separate pool on the same database.
func (w *world[Tx]) other() *world[Tx] {
	e := *w.Env
	e.Pool = e.Handle.Open(w.T, e.DSN)
	return &world[Tx]{Env: &e}
}

func cancelledClaim[Tx any](w *world[Tx]) {
	other := w.other()
	release := w.holder(func(more func(context.Context, Tx) error) ask {
		return other.record(idempotency.DefaultWait, more)
	}, "claim")
	a := w.record(idempotency.DefaultWait, nil)
	w.ran.Store(0)
	if w.Engine == dbtest.SQLite { // its waiters cannot be observed
		start := time.Now()
		w.cancel("claim", a, "claim", func() bool { return time.Since(start) > 300*time.Millisecond })
	} else {
		w.cancel("claim", a, "claim", func() bool { return w.waiters() > 0 })
	}
	release(errors.New("rolled back"))
	w.allBack("claim")
	if n := w.Effects("claim"); n != 0 || w.ran.Load() != 0 {
		w.Errorf("claim: %d effects, the function ran %d times", n, w.ran.Load())
	}
	w.want(a, "claim", idempotency.Executed)
}

// cancelledStatement lets the function wait for a row that another session locks. SQLite has no
// row locks; there the statement never ends.
func cancelledStatement[Tx any](w *world[Tx]) {
	in, stop := make(chan struct{}, 1), func() error { return nil }
	stuck := func(ctx context.Context, tx Tx) error {
		select {
		case in <- struct{}{}:
		default: // run again
		}
		query := `UPDATE effects SET who = 'stuck' WHERE k = $1`
		if w.Engine == dbtest.SQLite {
			query = `UPDATE effects SET who = (WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT count(*) FROM c) WHERE k = $1`
		}
		_, err := w.Exec(ctx, tx, query, []byte("row"))
		return err
	}
	if w.Engine != dbtest.SQLite {
		tx, err := w.SQL.BeginTx(w.Ctx, nil)
		if err != nil {
			w.Fatal(err)
		}
		if _, err := tx.Exec(w.Rebind(`UPDATE effects SET who = 'holder' WHERE k = $1`), []byte("row")); err != nil {
			w.Fatal(err)
		}
		stop = tx.Rollback
	}
	a := w.record(idempotency.DefaultWait, stuck)
	w.cancel("statement", a, "statement", func() bool {
		if w.Engine != dbtest.SQLite {
			return w.waiters() > 0
		}
		<-in
		time.Sleep(100 * time.Millisecond)
		return true
	})
	if err := stop(); err != nil {
		w.Error(err)
	}
	w.allBack("statement")
	if n := w.Int(`SELECT COUNT(*) FROM effects WHERE who = 'stuck'`) + w.Effects("statement"); n != 0 {
		w.Errorf("statement: %d effects", n)
	}
	w.want(w.record(idempotency.DefaultWait, nil), "statement", idempotency.Executed)
}

// cancelledFollower cancels a duplicate. Duplicates in one process wait for the first call
// without a connection, and the cancellation of one does not affect the others.
func cancelledFollower[Tx any](w *world[Tx]) {
	store := w.Store(idempotency.Options{})
	held, let := make(chan struct{}), make(chan struct{})
	do := func(ctx context.Context) error {
		_, err := idempotency.Do(ctx, store, conformance.Op("follower"), func(ctx context.Context, tx Tx) (string, error) {
			close(held)
			<-let
			return "done", w.effect(ctx, tx, "follower")
		})
		return err
	}
	leader := make(chan error, 1)
	go func() { leader <- do(w.Ctx) }()
	<-held
	start := time.Now()
	w.cancel("follower", ask{"record", func(ctx context.Context, _ string) (idempotency.Outcome, error) { return 0, do(ctx) }},
		"follower", func() bool { return time.Since(start) > 100*time.Millisecond })
	if n := w.InUse(); n != 1 {
		w.Errorf("follower: %d connections are out, want the leader's", n)
	}
	close(let)
	if err := <-leader; err != nil {
		w.Errorf("follower: the leader: %v", err)
	}
	w.WantOnce("follower")
	w.allBack("follower")
}

// naiveCancel shows that go-sql-driver ends the client's wait but not the server's, whose own
// bound is 50 s. The server applies the write when the lock is free.
func naiveCancel[Tx any](w *world[Tx]) {
	tx, err := w.SQL.BeginTx(w.Ctx, nil)
	if err != nil {
		w.Fatal(err)
	}
	if _, err := tx.Exec(`UPDATE effects SET who = 'holder' WHERE k = 'row'`); err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.Ctx)
	defer cancel()
	cancelled := make(chan error, 1)
	go func() {
		_, err := w.SQL.ExecContext(ctx, `UPDATE effects SET who = 'naive' WHERE k = ?`, []byte("row"))
		cancelled <- err
	}()
	w.Eventually("the write waits", func() bool {
		return w.Int(`SELECT COUNT(*) FROM `+w.Engine.Sessions()+` WHERE db = DATABASE() AND command IN ('Query', 'Execute') AND info LIKE 'UPDATE effects%naive%' AND id <> CONNECTION_ID()`) == 1
	})
	cancel()
	err = <-cancelled
	if e := tx.Rollback(); err == nil || e != nil {
		w.Fatal(err, e)
	}
	w.Eventually("the naive form fails: the write that was cancelled is applied", func() bool {
		return w.Int(`SELECT COUNT(*) FROM effects WHERE who = 'naive'`) == 1
	})
}

// waiters counts the sessions that wait for a lock in this test's database.
func (w *world[Tx]) waiters() int {
	w.Helper()
	switch w.Engine {
	case dbtest.Postgres:
		return w.Int(`SELECT count(DISTINCT a.pid) FROM pg_stat_activity a
 JOIN pg_locks l ON l.pid = a.pid JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE a.wait_event_type = 'Lock' AND n.nspname = current_schema()`)
	case dbtest.MySQL, dbtest.MariaDB:
		return w.Int(`SELECT COUNT(*) FROM ` + w.Engine.Sessions() + ` WHERE db = DATABASE() AND command IN ('Query', 'Execute') AND id <> CONNECTION_ID()`)
	}
	return 0
}

func (w *world[Tx]) allBack(what string) {
	w.Helper()
	w.Eventually(what+": every connection is back in the pool", func() bool { return w.InUse() == 0 })
}
