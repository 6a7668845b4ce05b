package operations

import (
	"context"
	"database/sql"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// Refused is the suite of sessions that may not write.
func Refused[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	for name, f := range map[string]func(*env[Tx]){
		"ReadOnlySession": readOnlySession[Tx],
		"MissingGrants":   missingGrants[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, f)
		})
	}
}

// writers returns typical calls of a program, opened while writes are allowed; end closes
// everything.
func (e *env[Tx]) writers() (calls map[string]func() error, end func()) {
	e.Helper()
	s, refunds := e.Store(idempotency.Options{}), e.Refunds()
	l, err := sqllock.New(e.Ctx, e.DB)
	if err != nil {
		e.Fatal(err)
	}
	lease, err := l.Acquire(e.Ctx, "lease")
	if err != nil {
		e.Fatal(err)
	}
	tx := func(call func(tx Tx) error) func() error {
		return func() error {
			tx := e.BeginTx(sql.LevelDefault)
			defer func() { _ = e.End(e.Ctx, tx, false) }()
			return call(tx)
		}
	}
	rowLocks := e.RowLocker()
	calls = map[string]func() error{
		"Do": func() error { _, err := e.Do(s, conformance.Op("a")); return err },
		"InTx": func() error {
			return e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error { return e.Effect(ctx, tx, "a") })
		},
		"Table.Do": func() error {
			_, err := refunds.Do(e.Ctx, conformance.Refund{No: "a", Amount: 1}, func(context.Context, Tx) error { return nil })
			return err
		},
		"TryAcquire": func() error { _, err := l.TryAcquire(e.Ctx, "other"); return err },
		"DoTx":       tx(func(tx Tx) error { _, err := e.DoTx(s, tx, conformance.Op("a")); return err }),
		"ClaimTx": tx(func(tx Tx) error {
			_, err := refunds.ClaimTx(e.Ctx, tx, conformance.Refund{No: "a", Amount: 1})
			return err
		}),
		"ClaimAllTx": tx(func(tx Tx) error {
			_, err := refunds.ClaimAllTx(e.Ctx, tx, []conformance.Refund{{No: "a", Amount: 1}, {No: "b", Amount: 1}})
			return err
		}),
		"LockTx": tx(func(tx Tx) error { return rowLocks.LockTx(e.Ctx, tx, "key", holdfast.NoWait) }),
	}
	if e.Engine != dbtest.MySQL && e.Engine != dbtest.MariaDB { // a read-only transaction may take a lock in share mode there
		calls["Guard"] = tx(func(tx Tx) error { return l.Guard(e.Ctx, tx, lease.Term()) })
	}
	return calls, func() {
		if err := l.Close(e.Ctx); err != nil {
			e.Errorf("closing the locker: %v", err)
		}
	}
}

// readOnlySession makes the transactions of the role or of the session read-only.
func readOnlySession[Tx any](e *env[Tx]) {
	dbtest.Needs(e, e.Engine, dbtest.ReadOnlySession)
	to, back := `SET default_transaction_read_only = on`, `SET default_transaction_read_only = off`
	switch {
	case e.InnoDB():
		to, back = `SET SESSION TRANSACTION READ ONLY`, `SET SESSION TRANSACTION READ WRITE`
	case e.Engine == dbtest.SQLite:
		to, back = `PRAGMA query_only = 1`, `PRAGMA query_only = 0`
	}
	calls, end := e.writers()
	set := func(text string) {
		if _, err := access.Of(e.DB).Pool.Exec(e.Ctx, text); err != nil { // there is one connection
			e.Fatal(err)
		}
	}
	set(to)
	for what, call := range calls {
		e.wantsOne(what, call(), holdfast.ErrReadOnly)
	}
	set(back)
	end()
}

// missingGrants uses a role that may read and lacks other grants.
func missingGrants[Tx any](e *env[Tx]) {
	if e.Engine == dbtest.SQLite {
		return // it has no users
	}
	tables := []string{"effects", "refunds", "holdfast_schema", "holdfast_records", "holdfast_locks"}
	revoke := `REVOKE INSERT, UPDATE, DELETE ON `
	own := *e
	user, pool, drop := e.Role()
	defer drop()
	own.Pool = pool
	calls, end := own.writers()
	for _, table := range tables {
		e.Must(revoke + e.Schema() + `.` + table + ` FROM ` + user)
	}
	if e.Engine == dbtest.TiDB {
		delete(calls, "Guard") // FOR UPDATE asks for no right to write there
	}
	for what, call := range calls {
		own.wantsOne(what, call(), holdfast.ErrDenied)
	}
	for _, table := range tables { // so that the lease can be released
		e.Must(`GRANT INSERT, UPDATE, DELETE ON ` + e.Schema() + `.` + table + ` TO ` + user)
	}
	end()
}
