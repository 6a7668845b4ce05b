package rowlocks

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

// keyDeadlock makes two transactions wait for each other. One gets an error that asks for
// another run and is rolled back; the other gets its lock.
func keyDeadlock[Tx any](e *env[Tx]) {
	if !e.DB.Capabilities().RowLocks {
		return // one writer cannot wait for another writer that waits for it
	}
	l := e.RowLocker()
	txs := []Tx{e.BeginTx(sql.LevelReadCommitted), e.BeginTx(sql.LevelReadCommitted)}
	keys := []string{"a", "b"}
	for i, tx := range txs {
		if err := l.LockTx(e.Ctx, tx, keys[i], holdfast.Forever); err != nil {
			e.Fatal(err)
		}
	}
	errs := make(chan error, 1)
	go func() { errs <- l.LockTx(e.Ctx, txs[0], keys[1], holdfast.Forever) }()
	second := l.LockTx(e.Ctx, txs[1], keys[0], holdfast.Forever)
	first := <-errs
	if (first == nil) == (second == nil) {
		e.Errorf("got %v and %v, want one of them", first, second)
	}
	for i, err := range []error{first, second} {
		if err == nil {
			e.EndTx(txs[i], true)
			continue
		}
		if !errors.Is(err, holdfast.ErrRetry) || errors.Is(err, rowlock.ErrTimeout) || errors.Is(err, rowlock.ErrLockNotAvailable) || errors.Is(err, holdfast.ErrTxLost) {
			e.Errorf("got %v, want a retry and nothing else", err)
		}
		e.Logf("the loser: %v", err)
		e.WantRolledBack(txs[i])
	}
}

// keyGone uses a transaction that has ended while the caller continues.
func keyGone[Tx any](e *env[Tx]) {
	l := e.RowLocker()
	wantLost := func(what string, tx Tx) {
		e.Helper()
		for _, wait := range []time.Duration{holdfast.Forever, holdfast.NoWait, time.Second} {
			err := l.LockTx(e.Ctx, tx, "k", wait)
			if !errors.Is(err, holdfast.ErrTxLost) || errors.Is(err, holdfast.ErrRetry) || errors.Is(err, rowlock.ErrLockNotAvailable) || errors.Is(err, rowlock.ErrTimeout) {
				e.Errorf("%s: got %v, want that the transaction is lost, and nothing else", what, err)
			}
		}
	}
	for _, commit := range []bool{true, false} {
		tx := e.BeginTx(sql.LevelDefault)
		e.EndTx(tx, commit)
		wantLost("ended by the caller", tx)
	}
	if e.Engine != dbtest.Postgres { // PostgreSQL would report the end on the caller's own statement
		tx := e.BeginTx(sql.LevelDefault)
		if _, err := e.Exec(e.Ctx, tx, `ROLLBACK`); err != nil {
			e.Fatal(err)
		}
		wantLost("rolled back underneath", tx)
	}
	if e.DB.Capabilities().RowLocks {
		wantLost("a deadlock that was passed over", e.deadlocked())
	}
	if e.InnoDB() {
		e.timedOut(l, wantLost)
	}
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_locks WHERE granted_at > 0`); n != 0 {
		e.Errorf("%d locks were granted", n)
	}
}

// deadlocked returns the transaction that lost a deadlock.
func (e *env[Tx]) deadlocked() Tx {
	e.Helper()
	e.Must(`CREATE TABLE pair (id INT NOT NULL PRIMARY KEY, n INT NOT NULL)`)
	e.Must(`INSERT INTO pair VALUES (1, 0), (2, 0)`)
	txs := []Tx{e.BeginTx(sql.LevelReadCommitted), e.BeginTx(sql.LevelReadCommitted)}
	touch := func(i, id int) error {
		_, err := e.Exec(e.Ctx, txs[i], `UPDATE pair SET n = n + 1 WHERE id = $1`, id)
		return err
	}
	if err := errors.Join(touch(0, 1), touch(1, 2)); err != nil {
		e.Fatal(err)
	}
	errs := make(chan error, 1)
	go func() { errs <- touch(0, 2) }()
	second := touch(1, 1)
	first := <-errs
	if (first == nil) == (second == nil) {
		e.Fatalf("no deadlock: %v, %v", first, second)
	}
	if first == nil {
		e.EndTx(txs[0], false)
		return txs[1]
	}
	e.EndTx(txs[1], false)
	return txs[0]
}

// timedOut lets a lock wait of the caller end, and the caller continues. A server setting
// decides whether this ends the transaction.
func (e *env[Tx]) timedOut(l *rowlock.Locker[Tx], wantLost func(string, Tx)) {
	e.Helper()
	e.counter()
	holder, tx := e.BeginTx(sql.LevelDefault), e.BeginTx(sql.LevelDefault)
	if _, err := e.Exec(e.Ctx, holder, `UPDATE counter SET n = 1`); err != nil {
		e.Fatal(err)
	}
	if _, err := e.Exec(e.Ctx, tx, `SET SESSION innodb_lock_wait_timeout = 1`); err != nil {
		e.Fatal(err)
	}
	if _, err := e.Exec(e.Ctx, tx, `UPDATE counter SET n = 2`); err == nil {
		e.Fatal("it did not time out")
	}
	e.EndTx(holder, false)
	if e.Int(`SELECT @@innodb_rollback_on_timeout`) == 1 {
		e.Log("innodb_rollback_on_timeout is on")
		wantLost("a timeout that was passed over", tx)
		return
	}
	e.Log("innodb_rollback_on_timeout is off")
	if err := l.LockTx(e.Ctx, tx, "k", holdfast.Forever); err != nil {
		e.Error(err)
	}
	e.EndTx(tx, false)
}

// keyCancelled cancels the context: this also ends the wait on the server, and releases the
// other locks of the transaction.
func keyCancelled[Tx any](e *env[Tx]) {
	l := e.RowLocker()
	e.lockHeld(l, "mine")() // so that its row exists
	for _, wait := range []time.Duration{holdfast.Forever, time.Hour} {
		release := e.lockHeld(l, "k")
		tx := e.BeginTx(sql.LevelDefault)
		if e.DB.Capabilities().RowLocks {
			if err := l.LockTx(e.Ctx, tx, "mine", holdfast.Forever); err != nil {
				e.Fatal(err)
			}
		}
		boom := errors.New("boom")
		ctx, cancel := context.WithCancelCause(e.Ctx)
		errs := make(chan error, 1)
		go func() { errs <- l.LockTx(ctx, tx, "k", wait) }()
		if e.DB.Capabilities().RowLocks {
			e.Eventually("it waits at the server", func() bool { return e.Waiters() == 1 })
		} else {
			time.Sleep(100 * time.Millisecond)
		}
		start := time.Now()
		cancel(boom)
		if err := <-errs; !errors.Is(err, boom) {
			e.Errorf("got %v, want the context's cause", err)
		}
		e.Logf("the call returned after %v", time.Since(start).Round(time.Millisecond))
		if e.DB.Capabilities().RowLocks {
			e.Eventually("nobody waits at the server", func() bool { return e.Waiters() == 0 })
			e.Logf("the server's wait was over after %v", time.Since(start).Round(time.Millisecond))
			other := e.BeginTx(sql.LevelReadCommitted)
			if err := l.LockTx(e.Ctx, other, "mine", 10*time.Second); err != nil {
				e.Errorf("what the cancelled transaction held: %v", err)
			}
			e.EndTx(other, true)
		}
		_ = e.End(e.Ctx, tx, false)
		release()
	}
}

// keySettings checks that the session settings that bound a wait are restored, regardless of its
// outcome.
func keySettings[Tx any](e *env[Tx]) {
	if !e.DB.Capabilities().LockTimeouts {
		return // nothing is set that would have to be restored
	}
	set := map[dbtest.Engine]string{
		dbtest.Postgres: `SET LOCAL lock_timeout = '7777ms'`,
		dbtest.MySQL:    `SET SESSION innodb_lock_wait_timeout = 77, SESSION max_execution_time = 7777`,
		dbtest.MariaDB:  `SET SESSION innodb_lock_wait_timeout = 77, SESSION max_statement_time = 77`,
		dbtest.SQLite:   `PRAGMA busy_timeout = 7777`,
	}[e.Engine.Kin()]
	get := map[dbtest.Engine]string{
		dbtest.Postgres: `SELECT current_setting('lock_timeout')`,
		dbtest.MySQL:    `SELECT CONCAT(@@SESSION.innodb_lock_wait_timeout, '/', @@SESSION.max_execution_time)`,
		dbtest.MariaDB:  `SELECT CONCAT(@@SESSION.innodb_lock_wait_timeout, '/', @@SESSION.max_statement_time)`,
		dbtest.SQLite:   `PRAGMA busy_timeout`,
	}[e.Engine.Kin()]
	l := e.RowLocker()
	rows := e.lockable("a", "b")
	tx := e.BeginTx(sql.LevelReadCommitted * sql.IsolationLevel(min(len(e.Levels())-1, 1)))
	q, _ := access.Of(e.DB).Join(tx)
	read := func() (v string) {
		e.Helper()
		found, err := e.one(q, get, &v)
		if err != nil || !found {
			e.Fatalf("%v, %v", found, err)
		}
		return v
	}
	if _, err := e.Exec(e.Ctx, tx, set); err != nil {
		e.Fatal(err)
	}
	was := read()
	same := func(what string) {
		e.Helper()
		if now := read(); now != was {
			e.Errorf("%s: it is %s, and was %s", what, now, was)
		}
	}
	release := e.lockHeld(l, "held")
	holder := e.BeginTx(sql.LevelDefault)
	if e.DB.Capabilities().RowLocks {
		if _, err := rows.LockTx(e.Ctx, holder, holdfast.Forever, conformance.Account{No: "a"}); err != nil {
			e.Fatal(err)
		}
	}
	for _, wait := range []time.Duration{holdfast.NoWait, skip, 300 * time.Millisecond} {
		if err := l.LockTx(e.Ctx, tx, "held", max(wait, holdfast.NoWait)); !errors.Is(err, rowlock.ErrLockNotAvailable) && !errors.Is(err, rowlock.ErrTimeout) {
			e.Error(err)
		}
		same("a key that was not to be had")
		if _, err := lockRows(e, rows, tx, wait, conformance.Account{No: "a"}); wait != skip && !errors.Is(err, rowlock.ErrLockNotAvailable) && !errors.Is(err, rowlock.ErrTimeout) {
			e.Error(err)
		}
		same("a row that was not to be had")
	}
	release()
	e.EndTx(holder, true)
	for _, wait := range []time.Duration{holdfast.Forever, holdfast.NoWait, skip, time.Second} {
		for _, key := range []string{"held", "free"} {
			if err := l.LockTx(e.Ctx, tx, key, max(wait, holdfast.NoWait)); err != nil {
				e.Error(err)
			}
			same("a key that was")
		}
		if _, err := lockRows(e, rows, tx, wait, conformance.Account{No: "b"}, conformance.Account{No: "a"}); err != nil {
			e.Error(err)
		}
		same("rows that were")
		if _, err := lockRows(e, rows, tx, wait, conformance.Account{No: "none"}); !errors.Is(err, rowlock.ErrNotFound) {
			e.Error(err)
		}
		same("a row that is not there")
	}
	e.EndTx(tx, true)
}
