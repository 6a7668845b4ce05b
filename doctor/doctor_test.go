package doctor_test

import (
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

func TestMain(m *testing.M) { dbtest.VerifyNoLeaks(m) }

// examine checks a pool and returns the findings by check.
func examine[Tx any](t *testing.T, db *holdfast.DB[Tx], o doctor.Options) map[string]doctor.Finding {
	t.Helper()
	found, err := doctor.Check(t.Context(), db, o)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]doctor.Finding{}
	for i, f := range found {
		if f.Problem == "" || f.Advice == "" || f.Check == "" {
			t.Errorf("it says nothing: %+v", f)
		}
		if i > 0 && f.Severity > found[i-1].Severity {
			t.Errorf("%s comes behind %s", f.Check, found[i-1].Check)
		}
		all[f.Check] = f
	}
	return all
}

func want(t *testing.T, found map[string]doctor.Finding, check string, s doctor.Severity) {
	t.Helper()
	if f, ok := found[check]; !ok || f.Severity != s {
		t.Errorf("%s is to be %v: got %+v", check, s, f)
	}
}

func wantNone(t *testing.T, found map[string]doctor.Finding, checks ...string) {
	t.Helper()
	for _, check := range checks {
		if f, ok := found[check]; ok {
			t.Errorf("nothing is wrong with %s: %+v", check, f)
		}
	}
}

func wantAll(t *testing.T, f doctor.Finding, names ...string) {
	t.Helper()
	for _, name := range names {
		if !strings.Contains(f.Problem, name) {
			t.Errorf("%s is not in %+v", name, f)
		}
	}
}

// TestLockFamilies checks the finding that a lease, a fair lock, a semaphore and a row lock
// with the same name do not exclude each other.
func TestLockFamilies(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		locks := e.Locker()
		must := func(err error) {
			e.Helper()
			if err != nil {
				e.Fatal(err)
			}
		}
		_, err := locks.Acquire(e.Ctx, "order/41")
		must(err)
		_, err = fairlock.New(locks).Acquire(e.Ctx, "order/40")
		must(err)
		wantNone(e.T, examine(e.T, e.DB, doctor.Options{}), "lock families")

		_, err = fairlock.New(locks).Acquire(e.Ctx, "order/41")
		must(err)
		tx, err := e.Begin(e.Ctx, sql.LevelDefault)
		must(err)
		must(e.RowLocker().LockTx(e.Ctx, tx, "order/40", holdfast.NoWait))
		must(tx.Commit())
		found := examine(e.T, e.DB, doctor.Options{})
		want(e.T, found, "lock families", doctor.Warning)
		wantAll(e.T, found["lock families"], "order/40 (fair lock and row-lock key), order/41 (lease and fair lock)")
	})
}

// TestTables checks the findings about wrong tables, both Holdfast's and the program's.
func TestTables(t *testing.T) {
	t.Parallel()
	tables(t, conformance.SQL())
	tables(t, conformance.Pgx())
}

func tables[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Helper()
	conformance.Run(t, h, func(e *conformance.Env[Tx]) {
		text, folding := "VARBINARY(64)", "VARCHAR(64) COLLATE utf8mb4_general_ci"
		switch e.Engine {
		case dbtest.Postgres:
			e.Must(`CREATE COLLATION folds (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`)
			text, folding = "TEXT", `TEXT COLLATE folds`
		case dbtest.SQLite:
			text, folding = "TEXT", "TEXT COLLATE NOCASE"
		}
		e.Must(`CREATE TABLE exact (k ` + text + ` NOT NULL PRIMARY KEY)`)
		e.Must(`CREATE TABLE folding (k ` + folding + ` NOT NULL PRIMARY KEY)`)
		e.Must(`CREATE TABLE loose (k ` + text + ` NOT NULL)`)
		o := doctor.Options{Tables: []doctor.Table{{Name: "exact", Key: []string{"k"}}, {Name: "folding", Key: []string{"k"}}, {Name: "loose", Key: []string{"k"}}}}
		found := examine(e.T, e.DB, o)
		want(e.T, found, "table folding", doctor.Broken)
		want(e.T, found, "table loose", doctor.Broken)
		wantNone(e.T, found, "table exact", "schema", "index", "clock", "tables", "fsync")
		if e.Engine != dbtest.Vitess { // whose router is a pooler
			wantNone(e.T, found, "pooler")
		}

		switch e.Engine {
		case dbtest.Postgres:
			e.Must(`DROP INDEX holdfast_records_key_expires_at`)
			bad := []string{"holdfast_waiters", "holdfast_registers"}
			for _, table := range bad {
				e.Must(`ALTER TABLE ` + table + ` SET UNLOGGED`)
			}
			found = examine(e.T, e.DB, doctor.Options{})
			want(e.T, found, "tables", doctor.Broken)
			wantAll(e.T, found["tables"], bad...)
		case dbtest.SQLite:
			e.Must(`DROP INDEX holdfast_records_key_expires_at`)
			found = examine(e.T, e.DB, doctor.Options{})
		default:
			e.Must(`ALTER TABLE holdfast_records DROP INDEX records_due_at`)
			if e.Engine == dbtest.TiDB { // it has one storage engine
				found = examine(e.T, e.DB, doctor.Options{})
				break
			}
			bad := []string{"holdfast_floor", "holdfast_registers"}
			e.Must(`ALTER TABLE holdfast_floor ENGINE=MyISAM`)
			e.Must(`ALTER TABLE holdfast_registers DROP PRIMARY KEY, ENGINE=MyISAM`) // MyISAM limits keys to a shorter length
			found = examine(e.T, e.DB, doctor.Options{})
			want(e.T, found, "tables", doctor.Broken)
			wantAll(e.T, found["tables"], bad...)
		}
		want(e.T, found, "index", doctor.Warning)
		if !strings.Contains(found["index"].Problem, map[bool]string{false: "records_key_expires_at", true: "records_due_at"}[e.InnoDB()]) {
			e.Errorf("got %+v", found["index"])
		}
		e.Must(`DROP TABLE holdfast_schema`)
		want(e.T, examine(e.T, e.DB, doctor.Options{}), "schema", doctor.Broken)

		if _, err := doctor.Check(e.Ctx, e.DB, doctor.Options{MaxDrift: -1}); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("got %v", err)
		}
	})
}

// TestSettings sets each bad setting in a session and checks that it is found, and that the
// right value is not.
func TestSettings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		engines      []dbtest.Engine
		param, right string
		check        string
		severity     doctor.Severity
	}{
		{[]dbtest.Engine{dbtest.Postgres}, "synchronous_commit=off", "synchronous_commit=local", "synchronous_commit", doctor.Broken},
		{[]dbtest.Engine{dbtest.Postgres}, "default_transaction_isolation=repeatable%20read", "default_transaction_isolation=read%20committed", "isolation", doctor.Notice},
		{[]dbtest.Engine{dbtest.Postgres}, "idle_in_transaction_session_timeout=0", "idle_in_transaction_session_timeout=30000", "idle transactions", doctor.Warning},
		{[]dbtest.Engine{dbtest.MySQL, dbtest.MariaDB}, "wait_timeout=28800", "wait_timeout=60", "idle transactions", doctor.Warning},
		{[]dbtest.Engine{dbtest.MariaDB}, "idle_transaction_timeout=0", "idle_transaction_timeout=30", "idle transactions of MariaDB", doctor.Warning},
		{[]dbtest.Engine{dbtest.MySQL}, "transaction_isolation=%27REPEATABLE-READ%27", "transaction_isolation=%27READ-COMMITTED%27", "isolation", doctor.Notice},
		{[]dbtest.Engine{dbtest.MariaDB}, "tx_isolation=%27REPEATABLE-READ%27", "tx_isolation=%27READ-COMMITTED%27", "isolation", doctor.Notice},
		{[]dbtest.Engine{dbtest.SQLite}, "_pragma=synchronous(0)", "_pragma=synchronous(2)", "synchronous", doctor.Broken},
		{[]dbtest.Engine{dbtest.SQLite}, "_pragma=synchronous(1)", "_pragma=synchronous(2)", "durability", doctor.Notice},
		{[]dbtest.Engine{dbtest.SQLite}, "_pragma=busy_timeout(0)", "_pragma=busy_timeout(500)", "busy_timeout", doctor.Warning},
	} {
		t.Run(c.param, func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, conformance.With(conformance.SQL(), c.param, c.engines...), func(e *conformance.Env[*sql.Tx]) {
				want(e.T, examine(e.T, e.DB, doctor.Options{}), c.check, c.severity)
			})
			conformance.Run(t, conformance.With(conformance.SQL(), c.right, c.engines...), func(e *conformance.Env[*sql.Tx]) {
				wantNone(e.T, examine(e.T, e.DB, doctor.Options{}), c.check)
			})
		})
	}
}

// TestServerSettings checks settings that exist only for the whole server. The test restores
// them at once, because other tests run with less durability until then.
func TestServerSettings(t *testing.T) { //nolint:paralleltest // one setting of the server's
	for _, engine := range dbtest.Engines() {
		if engine != dbtest.MySQL && engine != dbtest.MariaDB {
			continue
		}
		conformance.Run(t, conformance.Only(conformance.SQL(), engine), func(e *conformance.Env[*sql.Tx]) {
			plant := func(setting, wrong, right string) {
				was := e.Int(`SELECT @@GLOBAL.` + setting)
				logs := e.Int(`SELECT @@GLOBAL.log_bin`) == 1
				restore := func() { e.Must(`SET GLOBAL ` + setting + ` = ` + strconv.Itoa(was)) }
				defer restore()
				e.Must(`SET GLOBAL ` + setting + ` = ` + wrong)
				found := examine(e.T, e.DB, doctor.Options{})
				e.Must(`SET GLOBAL ` + setting + ` = ` + right)
				mended := examine(e.T, e.DB, doctor.Options{})
				if setting == "sync_binlog" && !logs {
					wantNone(e.T, found, setting)
					return
				}
				want(e.T, found, setting, doctor.Broken)
				wantNone(e.T, mended, setting)
			}
			plant("innodb_flush_log_at_trx_commit", "2", "1")
			plant("sync_binlog", "0", "1")
		})
	}
}

// TestPoolOfOne checks that the doctor does not wait for a second connection on a pool of one.
func TestPoolOfOne(t *testing.T) {
	t.Parallel()
	h := conformance.SQL()
	h.Open = func(tb testing.TB, dsn string, opts ...holdfast.Options) conformance.Pool[*sql.Tx] {
		tb.Helper()
		pool := dbtest.OpenSQL(tb, dsn)
		pool.SetMaxOpenConns(1)
		return conformance.SQLPool(tb, pool, opts...)
	}
	conformance.Run(t, h, func(e *conformance.Env[*sql.Tx]) {
		start := time.Now()
		found := examine(e.T, e.DB, doctor.Options{})
		if e.Engine != dbtest.SQLite {
			want(e.T, found, "pooler", doctor.Notice)
		}
		if took := time.Since(start); took > time.Minute {
			e.Errorf("it took %v", took)
		}
	})
}

// TestClock checks clocks that differ, in both directions.
func TestClock(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		for shift, wants := range map[time.Duration]int{0: 0, time.Hour: 1, -time.Hour: 1} {
			found, err := doctor.Clock(e.Ctx, e.DB, shift, time.Minute)
			if err != nil || len(found) != wants {
				e.Errorf("%v apart: %v, %v", shift, found, err)
			}
		}
	})
}

// TestPoolerIsFound checks the finding about two connections that share one session.
func TestPoolerIsFound(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		found, err := doctor.Pooler(e.Ctx, e.DB, `SELECT 'one session'`)
		if err != nil || len(found) != 1 || found[0].Severity != doctor.Warning {
			e.Errorf("got %v, %v", found, err)
		}
	})
}
