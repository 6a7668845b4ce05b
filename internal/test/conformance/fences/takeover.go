package fences

import (
	"database/sql"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fence"
)

// takeover stops a client between its write and its commit. No later term is granted before the
// commit. The naive trigger reads the term without a lock: the later term is granted, and the stale
// write is committed after it.
func takeover[Tx any](e *env[Tx]) {
	orders := e.orders("a")
	e.enforce(orders)
	other := e.LockerWith(sqllock.Options{})
	expired := func() *sqllock.Lease {
		lease := e.MustAcquire(e.LockerWith(sqllock.Options{}), "order/a", sqllock.AcquireOptions{TTL: conformance.ShortTTL, NoRenewal: true})
		return lease
	}
	wait := func() {
		e.Eventually("the row expires", func() bool {
			return e.Int(`SELECT CASE WHEN expires_at <= `+e.DB.Access().Dialect.Now+` THEN 1 ELSE 0 END FROM holdfast_locks WHERE owner = '' AND name = $1`, []byte("lorder/a")) == 1
		})
	}
	write := func(lease *sqllock.Lease) *sql.Tx {
		tx, err := e.SQL.BeginTx(e.Ctx, nil)
		if err == nil {
			_, err = tx.ExecContext(e.Ctx, e.Rebind(`UPDATE orders SET state = 'held', fence = $1 WHERE id = $2`), lease.Token(), e.TextKey("a"))
		}
		if err != nil {
			e.Fatal(err)
		}
		return tx
	}
	try := func() error {
		next, err := other.TryAcquire(e.Ctx, "order/a")
		if err == nil {
			e.MustRelease(next)
		}
		return err
	}

	lease := expired()
	tx := write(lease)
	wait()
	for range 3 {
		if err := try(); !errors.Is(err, sqllock.ErrHeld) && (e.Engine != dbtest.SQLite || !e.DB.Retryable(err)) {
			e.Errorf("while the write is not committed: %v", err)
		}
	}
	if err := tx.Commit(); err != nil {
		e.Error(err)
	}
	next := e.MustAcquire(other, "order/a")
	e.wantState("a", "held")
	e.wantRefused("the former holder", e.update("a", "stale", lease.Token()))

	// A takeover that is not committed yet: the write waits for it, and is refused.
	if e.DB.Capabilities().RowLocks {
		taken, err := e.SQL.BeginTx(e.Ctx, nil)
		if err != nil {
			e.Fatal(err)
		}
		if _, err := taken.ExecContext(e.Ctx, e.Rebind(`UPDATE holdfast_locks SET token = token + 1 WHERE owner = '' AND name = $1`), []byte("lorder/a")); err != nil {
			e.Fatal(err)
		}
		refused := make(chan error, 1)
		go func() { refused <- e.update("a", "stale", next.Token()) }()
		e.Eventually("the write waits", func() bool { return e.Waiters() > 0 })
		if err := taken.Commit(); err != nil {
			e.Error(err)
		}
		e.wantRefused("behind a takeover", <-refused)
	}
	if had, err := other.ForceRelease(e.Ctx, "order/a", 0, "test"); err != nil || !had {
		e.Errorf("force-release: %v, %v", had, err)
	}
	e.naiveTrigger(expired, wait, write, try)
}

// naiveTrigger is the same with a trigger that locks nothing. SQLite has one writer: it needs no
// lock, and no trigger there can leave it out.
func (e *env[Tx]) naiveTrigger(expired func() *sqllock.Lease, wait func(), write func(*sqllock.Lease) *sql.Tx, try func() error) {
	e.Helper()
	if !e.DB.Capabilities().RowLocks {
		return
	}
	orders := e.fence(fence.Spec{Table: "orders", Key: "order/{id}"})
	e.wantPassed("Unenforce", orders.Unenforce(e.Ctx))
	if e.Engine == dbtest.Postgres {
		e.Must(`CREATE FUNCTION naive() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
 IF NOT EXISTS (SELECT 1 FROM holdfast_locks WHERE name = convert_to('lorder/' || NEW.id, 'UTF8') AND token = NEW.fence AND attempt IS NOT NULL) THEN RAISE EXCEPTION 'stale'; END IF;
 RETURN NULL; END $$`)
		e.Must(`CREATE TRIGGER naive AFTER UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION naive()`)
	} else {
		e.Must(`CREATE TRIGGER naive AFTER UPDATE ON orders FOR EACH ROW SET @naive = 1`) // a plain read within a trigger locks at REPEATABLE READ
	}
	lease := expired()
	tx := write(lease)
	wait()
	if err := try(); err != nil {
		e.Errorf("the naive trigger should have let the next term be granted: %v", err)
	}
	if err := tx.Commit(); err != nil {
		e.Error(err)
	}
	e.wantState("a", "held") // a stale write
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
		if _, _, err := e.ReadInt(old, `SELECT COUNT(*) FROM effects`); err != nil {
			e.Fatal(err)
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
