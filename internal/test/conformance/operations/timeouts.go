package operations

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/businessrow"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

// Timeouts is the suite of the servers' own session timeouts. When one of them ends a call, the
// caller gets a Holdfast error and never an engine code. Each setting comes from the role or the
// DSN. Those that end a session are set in the transactions to end: other transactions may take
// as long as the machine needs.
func Timeouts[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	dbtest.NotUnderRace(t, "the timeouts are the server's")
	for _, c := range []struct {
		param, setting string // as the error names it
		engine         dbtest.Engine
		f              func(e *env[Tx], setting string)
	}{
		{"statement_timeout=1500", "", dbtest.Postgres, boundedWaits[Tx]},
		{"lock_timeout=100", "", dbtest.Postgres, boundedWaits[Tx]},
		{"max_execution_time=1500&innodb_lock_wait_timeout=1", "", dbtest.MySQL, boundedWaits[Tx]},
		{"max_statement_time=1.5", "", dbtest.MariaDB, boundedWaits[Tx]},
		{"innodb_lock_wait_timeout=1", "", dbtest.MariaDB, boundedWaits[Tx]},
		{"idle_in_transaction_session_timeout=0", "idle_in_transaction_session_timeout", dbtest.Postgres, endedSession[Tx]},
		{"transaction_timeout=0", "transaction_timeout", dbtest.Postgres, endedSession[Tx]},
	} {
		if with := conformance.With(h, c.param, c.engine); h.Runs(c.engine) {
			t.Run(c.param, func(t *testing.T) {
				t.Parallel()
				if !known(t, c.engine, c.setting) {
					return
				}
				run(t, with, func(e *env[Tx]) { c.f(e, c.setting) })
			})
		}
	}
}

// known reports whether the server has the setting. transaction_timeout exists since PostgreSQL
// 17, and a connection that names an unknown setting is refused.
func known(t *testing.T, engine dbtest.Engine, setting string) bool {
	if setting != "transaction_timeout" || !slices.Contains(dbtest.Engines(), engine) {
		return true
	}
	var n int
	row := dbtest.OpenSQL(t, dbtest.DSN(t, engine)).QueryRowContext(t.Context(), `SELECT COUNT(*) FROM pg_settings WHERE name = $1`, setting)
	if err := row.Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n == 1
}

// wantsOne fails unless err is one of the errors that the call documents.
func (e *env[Tx]) wantsOne(what string, err error, of ...error) {
	e.Helper()
	for _, target := range of {
		if errors.Is(err, target) {
			return
		}
	}
	e.Errorf("%s: got %v, want one of %v", what, err, of)
}

// boundedWaits lets the server end a wait. A statement timeout comes before Holdfast's own
// bound; a lock timeout may come after it.
func boundedWaits[Tx any](e *env[Tx], _ string) {
	long := time.Duration(0)
	if strings.Contains(e.Handle.Name, "statement_time") {
		long = time.Minute
	}
	e.pairs()
	s := e.Store(idempotency.Options{LockTimeout: long, Attempts: 2, Wait: 2 * time.Second})
	twice := holdfast.TxOptions{LockTimeout: long, Attempts: 2}
	tx := func(call func(tx Tx) error) error {
		e.Helper()
		tx := e.BeginTx(sql.LevelDefault)
		err := call(tx)
		_ = e.End(e.Ctx, tx, false)
		return err
	}

	release := e.HoldKey("held")
	_, err := e.Do(s, conformance.Op("held"))
	e.wantsOne("Do on a held key", err, idempotency.ErrInProgress)
	e.wantsOne("DoTx on a held key", tx(func(tx Tx) error {
		_, err := e.DoTx(s, tx, conformance.Op("held"))
		return err
	}), idempotency.ErrInProgress)
	release()

	other, err := e.SQL.BeginTx(e.Ctx, nil)
	if err != nil {
		e.Fatal(err)
	}
	defer func() { _ = other.Rollback() }()
	for _, q := range []string{`UPDATE pair SET n = 1 WHERE id = 1`, `INSERT INTO refunds (refund_no, amount) VALUES ('R-1', 1)`} {
		if _, err := other.ExecContext(e.Ctx, q); err != nil {
			e.Fatal(err)
		}
	}
	update := func(ctx context.Context, tx Tx) error {
		_, err := e.Exec(ctx, tx, `UPDATE pair SET n = 2 WHERE id = 1`)
		return err
	}
	functions := func(ctx context.Context, tx Tx) (string, error) { return "", update(ctx, tx) }
	if e.Engine == dbtest.Postgres || long > 0 { // elsewhere the timeout applies to SELECT only, or Holdfast's own bound is first
		_, err = idempotency.Do(e.Ctx, s, conformance.Op("row"), functions)
		e.wantsOne("a function of Do", err, holdfast.ErrRetry)
		e.wantsOne("InTx", e.DB.InTx(e.Ctx, update, twice), holdfast.ErrRetry)
		e.wantsOne("a function of DoTx", tx(func(tx Tx) error {
			_, err := idempotency.DoTx(e.Ctx, s, tx, conformance.Op("row"), functions)
			return err
		}), holdfast.ErrRetry)
	}
	refunds, err := businessrow.New[conformance.Refund](e.Ctx, e.DB, holdfast.TableSpec{Table: "refunds", Key: []string{"refund_no"}},
		businessrow.Options{Compare: []string{"amount"}, LockTimeout: long, Attempts: 2, Wait: 2 * time.Second})
	if err != nil {
		e.Fatal(err)
	}
	_, err = refunds.Do(e.Ctx, conformance.Refund{No: "R-1", Amount: 1}, update)
	e.wantsOne("Table.Do", err, idempotency.ErrInProgress)
	e.wantsOne("ClaimTx", tx(func(tx Tx) error {
		_, err := refunds.ClaimTx(e.Ctx, tx, conformance.Refund{No: "R-1", Amount: 1})
		return err
	}), holdfast.ErrRetry)
	_ = other.Rollback()
	e.boundedLocks(tx)
}

// boundedLocks is boundedWaits for sqllock.
func (e *env[Tx]) boundedLocks(tx func(call func(tx Tx) error) error) {
	l := e.Locker()
	lease, err := l.Acquire(e.Ctx, "lease")
	if err != nil {
		e.Fatal(err)
	}
	other, err := e.SQL.BeginTx(e.Ctx, nil)
	if err != nil {
		e.Fatal(err)
	}
	defer func() { _ = other.Rollback() }()
	if _, err := other.ExecContext(e.Ctx, `UPDATE holdfast_locks SET holder = holder`); err != nil {
		e.Fatal(err)
	}
	e.wantsOne("Guard", tx(func(tx Tx) error { return l.Guard(e.Ctx, tx, lease.Term()) }), holdfast.ErrRetry)
	_, err = e.Locker().TryAcquire(e.Ctx, "lease")
	e.wantsOne("TryAcquire", err, sqllock.ErrHeld, holdfast.ErrRetry)
	_ = other.Rollback()

	holder := e.BeginTx(sql.LevelDefault)
	defer e.EndTx(holder, false)
	rowLocks := e.RowLocker()
	if err := rowLocks.LockTx(e.Ctx, holder, "key", holdfast.NoWait); err != nil {
		e.Fatal(err)
	}
	for what, c := range map[string]struct {
		wait time.Duration
		want error
	}{
		"NoWait": {holdfast.NoWait, rowlock.ErrLockNotAvailable}, "a wait": {3 * time.Second, rowlock.ErrTimeout},
	} {
		e.wantsOne("LockTx "+what, tx(func(tx Tx) error { return rowLocks.LockTx(e.Ctx, tx, "key", c.wait) }), c.want)
	}
	if strings.Contains(e.Handle.Name, "statement_timeout") {
		e.wantsOne("LockTx Forever", tx(func(tx Tx) error { return rowLocks.LockTx(e.Ctx, tx, "key", holdfast.Forever) }), holdfast.ErrRetry)
	}
}

// endedSession lets the server end the session while the function does something else. COMMIT
// was not sent, so the call runs again up to its limit, and the last error names the setting.
func endedSession[Tx any](e *env[Tx], setting string) {
	runs, ends := 0, 1
	idle := func(key string) func(ctx context.Context, tx Tx) error {
		return func(ctx context.Context, tx Tx) error {
			if err := e.Effect(ctx, tx, key); err != nil {
				return err
			}
			if runs++; runs > ends {
				return nil
			}
			pid := e.backend(ctx, tx)
			if _, err := e.Exec(ctx, tx, `SET LOCAL `+setting+` = '300ms'`); err != nil {
				return err
			}
			e.Eventually("the server ends the session", func() bool {
				return e.Int(`SELECT COUNT(*) FROM pg_stat_activity WHERE pid = $1`, pid) == 0
			})
			return nil
		}
	}
	calls := map[string]func(key string) error{
		"Do": func(key string) error {
			_, err := idempotency.Do(e.Ctx, e.Store(idempotency.Options{Attempts: 2}), conformance.Op(key), func(ctx context.Context, tx Tx) (string, error) {
				return "", idle(key)(ctx, tx)
			})
			return err
		},
		"InTx": func(key string) error { return e.DB.InTx(e.Ctx, idle(key), holdfast.TxOptions{Attempts: 2}) },
		"Table.Do": func(key string) error {
			refunds, err := businessrow.New[conformance.Refund](e.Ctx, e.DB, holdfast.TableSpec{Table: "refunds", Key: []string{"refund_no"}},
				businessrow.Options{Attempts: 2})
			if err != nil {
				return err
			}
			_, err = refunds.Do(e.Ctx, conformance.Refund{No: key, Amount: 1}, idle(key))
			return err
		},
	}
	for what, call := range calls {
		runs, ends = 0, 1
		if err := call(what + " once"); err != nil || runs != 2 {
			e.Errorf("%s, ended once: %v after %d runs", what, err, runs)
		}
		e.WantOnce(what + " once")
		runs, ends = 0, 100
		err := call(what + " always")
		if !errors.Is(err, holdfast.ErrRetry) || errors.Is(err, holdfast.ErrUnknown) || runs != 2 || !strings.Contains(err.Error(), setting) {
			e.Errorf("%s, ended always: %v after %d runs", what, err, runs)
		}
		if n := e.Effects(what + " always"); n != 0 {
			e.Errorf("%s: %d effects", what, n)
		}
	}
	runs, ends = 0, 100
	tx := e.BeginTx(sql.LevelDefault)
	_, err := idempotency.DoTx(e.Ctx, e.Store(idempotency.Options{}), tx, conformance.Op("tx"), func(ctx context.Context, tx Tx) (string, error) {
		return "", idle("tx")(ctx, tx)
	})
	e.WantRolledBack(tx)
	e.wantsOne("DoTx", err, holdfast.ErrRetry)
	tx = e.BeginTx(sql.LevelDefault)
	if err := idle("commit")(e.Ctx, tx); err != nil {
		e.Fatal(err)
	}
	if o := e.DB.CommitOutcome(e.End(e.Ctx, tx, true)); o != holdfast.NotDone || e.Effects("commit") != 0 {
		e.Errorf("a caller's own commit: %v, and %d effects", o, e.Effects("commit"))
	}
}

// backend returns the server process that runs tx.
func (e *env[Tx]) backend(ctx context.Context, tx Tx) (pid int) {
	e.Helper()
	q, err := access.Of(e.DB).Join(tx)
	if err != nil {
		e.Fatal(err)
	}
	rows, err := q.Query(ctx, `SELECT pg_backend_pid()`)
	if err != nil {
		e.Fatal(err)
	}
	if rows.Next() {
		err = rows.Scan(&pid)
	}
	if err := errors.Join(err, rows.Err(), rows.Close()); err != nil {
		e.Fatal(err)
	}
	return pid
}
