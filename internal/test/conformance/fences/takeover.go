package fences

import (
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// takeover stops a client between its write and its commit, at each isolation level. No later term is
// granted before the commit. The naive trigger reads the term without a lock: the later term is granted,
// and the stale write is committed after it.
func takeover[Tx any](e *env[Tx]) {
	orders := e.orders("a")
	e.enforce(orders)
	other := e.LockerWith(sqllock.Options{})
	try := func() error {
		next, err := other.TryAcquire(e.Ctx, "order/a")
		if err == nil {
			e.MustRelease(next)
		}
		return err
	}
	levels := []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead}
	if !e.DB.Capabilities().RowLocks {
		levels = []sql.IsolationLevel{sql.LevelDefault}
	}
	for _, level := range levels {
		lease, tx := e.openWrite(level)
		for range 3 {
			if err := try(); !errors.Is(err, sqllock.ErrHeld) && (e.Engine != dbtest.SQLite || !e.DB.Retryable(err)) {
				e.Errorf("at %v, while the write is not committed: %v", level, err)
			}
		}
		e.Check(tx.Commit())
		next := e.MustAcquire(other, "order/a")
		e.wantState("a", "held")
		e.wantRefused("the former holder", e.update("a", "stale", lease.Token()))
		e.MustRelease(next)
	}
	if !e.DB.Capabilities().RowLocks {
		return // it has one writer, and no trigger could leave a lock out
	}

	// A takeover that is not committed yet: the write waits for it, and is refused.
	next := e.MustAcquire(other, "order/a")
	taken, err := e.SQL.BeginTx(e.Ctx, nil)
	e.Check(err)
	_, err = taken.ExecContext(e.Ctx, e.Rebind(`UPDATE holdfast_locks SET token = token + 1 WHERE owner = '' AND name = $1`), []byte("lorder/a"))
	e.Check(err)
	refused := make(chan error, 1)
	go func() { refused <- e.update("a", "stale", next.Token()) }()
	e.Eventually("the write waits", func() bool { return e.Waiters() > 0 })
	e.Check(taken.Commit())
	e.wantRefused("behind a takeover", <-refused)
	_, err = other.ForceRelease(e.Ctx, "order/a", 0, holdfast.Actor{By: "test", Reason: "test"})
	e.Check(err)

	e.wantPassed("Unenforce", orders.Unenforce(e.Ctx))
	e.naiveTrigger()
	_, tx := e.openWrite(sql.LevelReadCommitted)
	if err := try(); err != nil {
		e.Errorf("the naive trigger should have let the next term be granted: %v", err)
	}
	e.Check(tx.Commit())
	e.wantState("a", "held") // a stale write
}

// openWrite returns a transaction that has written under a lease which has expired since.
func (e *env[Tx]) openWrite(level sql.IsolationLevel) (*sqllock.Lease, *sql.Tx) {
	e.Helper()
	lease := e.MustAcquire(e.LockerWith(sqllock.Options{}), "order/a", sqllock.AcquireOptions{TTL: conformance.ShortTTL, NoRenewal: true})
	tx, err := e.SQL.BeginTx(e.Ctx, &sql.TxOptions{Isolation: level})
	e.Check(err)
	_, err = tx.ExecContext(e.Ctx, e.Rebind(`UPDATE orders SET state = 'held', fence = $1 WHERE id = $2`), lease.Token(), e.TextKey("a"))
	e.Check(err)
	e.Eventually("the row expires", func() bool {
		return e.Int(`SELECT CASE WHEN expires_at <= `+access.Of(e.DB).Dialect.Now+` THEN 1 ELSE 0 END FROM holdfast_locks WHERE owner = '' AND name = $1`, []byte("lorder/a")) == 1
	})
	return lease, tx
}

// naiveTrigger is a trigger that tests the term and locks nothing.
func (e *env[Tx]) naiveTrigger() {
	e.Helper()
	const live = `NOT EXISTS (SELECT 1 FROM holdfast_locks WHERE name = {name} AND token = NEW.fence AND attempt IS NOT NULL)`
	if e.Engine == dbtest.Postgres {
		e.Must(`CREATE FUNCTION naive() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
 IF ` + strings.Replace(live, "{name}", "convert_to('lorder/' || NEW.id, 'UTF8')", 1) + ` THEN RAISE EXCEPTION 'stale'; END IF;
 RETURN NULL; END $$`)
		e.Must(`CREATE TRIGGER naive AFTER UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION naive()`)
		return
	}
	e.Must(`CREATE TRIGGER naive AFTER UPDATE ON orders FOR EACH ROW IF ` + strings.Replace(live, "{name}", "CONCAT('lorder/', NEW.id)", 1) + ` THEN SIGNAL SQLSTATE '45000'; END IF`)
}

// isolation checks that the triggers read what is committed, at each isolation level.
func isolation[Tx any](e *env[Tx]) {
	orders := e.orders("a")
	e.enforce(orders)
	for i, level := range e.Levels() {
		key := conformance.Numbered("level", i)
		e.Must(`INSERT INTO effects (k, who) VALUES ($1, 'x')`, []byte(key))
		l := e.LockerWith(sqllock.Options{})
		first := e.MustAcquire(l, "order/a")
		old := e.BeginTx(level) // its snapshot is older than the next term
		early := e.BeginTx(level)
		for _, tx := range []Tx{old, early} {
			_, _, err := e.ReadInt(tx, `SELECT COUNT(*) FROM effects`)
			e.Check(err)
		}
		e.MustRelease(first)
		next := e.MustAcquire(l, "order/a")
		write := func(tx Tx, token int64) error {
			_, err := e.Exec(e.Ctx, tx, `UPDATE orders SET state = 'x', fence = $1 WHERE id = $2`, token, e.TextKey("a"))
			return err
		}
		err := write(old, first.Token())
		if err != nil && !e.DB.Retryable(err) {
			e.wantRefused("an old snapshot, and a stale token", err)
		}
		if err == nil {
			e.Errorf("at %v a stale write passed", level)
		}
		_ = e.End(e.Ctx, old, false)
		// The token of the live term, from a transaction that has read before the grant: only Guard
		// refuses that where a write does not need the snapshot.
		passes := level == sql.LevelReadCommitted || e.StaleWrites()
		if err := write(early, next.Token()); (err == nil) != passes || err != nil && !e.DB.Retryable(err) {
			e.Errorf("at %v, the live token in an old snapshot: %v", level, err)
		}
		_ = e.End(e.Ctx, early, false)
		fresh := e.BeginTx(level)
		if err := write(fresh, next.Token()); err != nil {
			e.Errorf("at %v: %v", level, err)
		}
		e.EndTx(fresh, true)
		e.MustRelease(next)
	}
	if e.Engine != dbtest.Postgres {
		return
	}
	// A row of a lock that is newer than the snapshot: another transaction may succeed.
	old := e.BeginTx(sql.LevelRepeatableRead)
	if _, _, err := e.ReadInt(old, `SELECT COUNT(*) FROM effects`); err != nil {
		e.Fatal(err)
	}
	time.Sleep(time.Millisecond)
	e.Must(`DELETE FROM holdfast_locks`)
	lease := e.MustAcquire(e.LockerWith(sqllock.Options{}), "order/a")
	e.Must(`UPDATE holdfast_locks SET name = $1`, []byte("lorder/b"))
	_, err := e.Exec(e.Ctx, old, `INSERT INTO orders (id, state, fence) VALUES ('b', 'x', $1)`, lease.Token())
	if !e.DB.Retryable(err) || errors.Is(err, holdfast.ErrUnknown) {
		e.Errorf("a snapshot without the row: %v", err)
	}
	_ = e.End(e.Ctx, old, false)
}
