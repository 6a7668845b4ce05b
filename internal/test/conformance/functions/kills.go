package functions

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

var kills = map[string]func(*env){
	"FunctionKilled":    functionKilled,
	"FunctionKillStorm": functionKillStorm,
}

// ending is the SQL that looks at a session, and ends its statement, as a client's query time-out does.
type ending struct{ self, settings, waits, kill string }

func (e *env) ending() ending {
	if e.Engine == dbtest.Postgres {
		return ending{
			self: `SELECT pg_backend_pid()`, settings: `SELECT current_setting('lock_timeout') || current_setting('search_path') || current_setting('statement_timeout')`,
			waits: `SELECT COUNT(*) FROM pg_stat_activity WHERE pid = %d AND wait_event_type = 'Lock'`, kill: `SELECT pg_cancel_backend(%d)`,
		}
	}
	isolation := "@@transaction_isolation"
	if e.Engine == dbtest.MariaDB {
		isolation = "@@tx_isolation"
	}
	return ending{
		self: `SELECT CONNECTION_ID()`, settings: `SELECT CONCAT(@@innodb_lock_wait_timeout, ' ', @@autocommit, ' ', @@sql_mode, ' ', ` + isolation + `)`,
		waits: `SELECT COUNT(*) FROM ` + e.Engine.Sessions() + ` WHERE id = %d AND state LIKE 'Waiting for table%%'`, kill: `KILL QUERY %d`,
	}
}

// victim is a session whose statements are ended.
type victim struct {
	*sql.Conn
	ending
	id     int
	before string
}

func (e *env) victim() *victim {
	e.Helper()
	v := &victim{Conn: e.conn(), ending: e.ending()}
	e.Check(v.QueryRowContext(e.Ctx, v.self).Scan(&v.id))
	e.Check(v.QueryRowContext(e.Ctx, v.settings).Scan(&v.before))
	return v
}

// intact fails unless the session is as it was: its settings, and that a write is committed.
func (e *env) intact(what string, v *victim) {
	e.Helper()
	var after string
	e.Check(v.QueryRowContext(e.Ctx, v.settings).Scan(&after))
	if after != v.before {
		e.Errorf("%s: the settings were %q and are %q", what, v.before, after)
	}
	name := newAttempt()
	e.on(v.Conn, `INSERT INTO refunds (refund_no, amount) VALUES ('`+name+`', 1)`)
	if n := e.Int(`SELECT COUNT(*) FROM refunds WHERE refund_no = $1`, name); n != 1 {
		e.Errorf("%s: a write after it said ok, and %d of 1 rows are there", what, n)
		e.on(v.Conn, `ROLLBACK`)
	}
}

// functionKilled ends each function while something stands in its way.
func functionKilled(e *env) {
	attempt := newAttempt()
	e.acquired("killed", attempt)
	calls := map[string][]any{
		"lookup": {"default", "", "refund", "killed", nil, 0}, "acquire": {"", "killed", minute, attempt, nil},
		"renew": {"", "killed", attempt, minute}, "release": {"", "killed", attempt},
		"claim": {"default", "", "refund", "killed", nil, 0, 1_000_000}, "guard": {"", "killed", 1},
	}
	inTx := map[string]bool{"claim": true, "guard": true}
	for function, args := range calls {
		v := e.victim()
		if inTx[function] {
			e.on(v.Conn, `START TRANSACTION`)
		}
		free := e.lockTables("holdfast_records", "holdfast_locks", "holdfast_floor")
		ended := make(chan error, 1)
		go func() {
			_, err := e.call(v, function, args...)
			ended <- err
		}()
		e.Eventually(function+" waits", func() bool { return e.Int(fmt.Sprintf(v.waits, v.id)) == 1 })
		e.Must(fmt.Sprintf(v.kill, v.id))
		if err := <-ended; err == nil {
			e.Errorf("%s was not ended", function)
		}
		free()
		if inTx[function] {
			e.on(v.Conn, `ROLLBACK`)
		}
		e.intact(function, v)
		if !inTx[function] && function != "release" {
			if a, err := e.call(v, function, args...); err != nil || a["outcome"] == "" {
				e.Errorf("%s after it was ended: %v, %v", function, a, err)
			}
		}
		_ = v.Raw(func(any) error { return errBad })
	}
}

// lockTables locks tables, so that every statement on them waits, until the function that it returns is called.
func (e *env) lockTables(tables ...string) (free func()) {
	e.Helper()
	c := e.conn()
	lock, unlock := `LOCK TABLES `, `UNLOCK TABLES`
	if e.Engine == dbtest.Postgres {
		e.on(c, `BEGIN`)
		lock, unlock = `LOCK TABLE `, `ROLLBACK`
	}
	for i, table := range tables {
		if i > 0 {
			lock += ", "
		}
		lock += table
		if e.Engine != dbtest.Postgres {
			lock += " WRITE"
		}
	}
	e.on(c, lock)
	e.Cleanup(func() { _, _ = c.ExecContext(context.WithoutCancel(e.Ctx), unlock) }) // a test that fails holds them
	return func() { e.on(c, unlock) }
}

// functionKillStorm ends statements of sessions that call the functions, beside Go's own calls on the same
// keys: one KILL for each statement, sent at the same moment, and none for one that is sent again, so that
// the storm ends. Whichever statement is hit, a key has one effect, a session
// stays as it was, and a write that said ok is there.
func functionKillStorm(e *env) {
	const clients, rounds = 4, 12
	store, locks := e.Store(idempotency.Options{}), e.locker(sqllock.Options{})
	victims := make([]*victim, clients)
	for i := range victims {
		victims[i] = e.victim()
	}
	var wg sync.WaitGroup
	about := make(chan *victim, clients)
	for i, v := range victims {
		wg.Go(func() {
			for round := range rounds {
				key := fmt.Sprintf("storm %d", round)
				e.stormRound(v, about, key, fmt.Sprintf("storm %d %d", i, round))
			}
		})
	}
	wg.Go(func() {
		for round := range rounds {
			key := fmt.Sprintf("storm %d", round)
			if _, err := e.Do(store, op(key)); err != nil && !e.DB.Retryable(err) && !errors.Is(err, idempotency.ErrInProgress) {
				e.Errorf("Do: %v", err)
			}
			if lease, err := locks.TryAcquire(e.Ctx, key); err == nil {
				_ = lease.Release(e.Ctx)
			}
		}
	})
	killed := make(chan int, 1)
	go func() {
		n := 0
		for v := range about {
			if _, err := e.SQL.ExecContext(e.Ctx, fmt.Sprintf(v.kill, v.id)); err == nil {
				n++
			}
		}
		killed <- n
	}()
	wg.Wait()
	close(about)
	e.Logf("%d KILLs", <-killed)
	for _, v := range victims {
		// The last KILL may hit one more statement.
		e.Eventually("the session answers", func() bool { return v.PingContext(e.Ctx) == nil })
		_, _ = v.ExecContext(e.Ctx, `ROLLBACK`)
		e.intact("after the storm", v)
		_ = v.Raw(func(any) error { return errBad })
	}
	for round := range rounds {
		key := fmt.Sprintf("storm %d", round)
		e.Eventually(key+" is done", func() bool {
			_, err := e.do(key)
			return err == nil
		})
		e.WantOnce(key)
	}
}

// stormRound is one round of a client: an operation, a lease, and a plain write, each until it is answered.
func (e *env) stormRound(v *victim, about chan<- *victim, key, name string) {
	ctx := context.WithoutCancel(e.Ctx)
	shoot := func() {
		select {
		case about <- v:
		default: // enough are under way
		}
	}
	if _, err := v.ExecContext(ctx, `START TRANSACTION`); err == nil {
		shoot()
		a, err := e.claim(v, key)
		if err == nil && a["outcome"] == "claimed" {
			_, err = v.ExecContext(ctx, e.Rebind(`INSERT INTO effects (k, who) VALUES ($1, 'a function')`), []byte(key))
			if err == nil {
				shoot()
				err = e.finish(v, a["claim"], "succeeded", `"done"`)
			}
		}
		if err == nil {
			_, err = v.ExecContext(ctx, `COMMIT`)
		}
		for err != nil && e.Ctx.Err() == nil {
			_, err = v.ExecContext(ctx, `ROLLBACK`)
		}
	}
	attempt := newAttempt()
	shoot()
	if a, err := e.call(v, "acquire", "", key, minute, attempt, nil); err == nil && a["outcome"] == "acquired" {
		shoot()
		_, _ = e.call(v, "renew", "", key, attempt, minute)
	}
	shoot()
	for e.Ctx.Err() == nil { // a release that was killed before it wrote is sent again
		if _, err := e.call(v, "release", "", key, attempt); err == nil {
			break
		}
	}
	shoot()
	_, _ = e.call(v, "lookup", "default", "", "refund", key, nil, 0)
	for e.Ctx.Err() == nil {
		_, err := v.ExecContext(ctx, `INSERT INTO refunds (refund_no, amount) VALUES ('`+name+`', 1)`)
		if err == nil {
			break
		}
	}
	if n := e.Int(`SELECT COUNT(*) FROM refunds WHERE refund_no = $1`, name); n != 1 {
		e.Errorf("%s: a write said ok, and %d of 1 rows are there", name, n)
	}
}
