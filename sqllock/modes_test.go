package sqllock_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/conformance/hostile"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// TestSQLModes checks that everything works in each SQL mode that changes the meaning of a
// MySQL or MariaDB statement, with and without the driver writing the parameters into the
// text.
func TestSQLModes(t *testing.T) {
	dbtest.NotUnderRace(t, "the modes are the server's")
	t.Parallel()
	both := []dbtest.Engine{dbtest.MySQL, dbtest.MariaDB}
	for _, c := range []struct {
		mode    string
		engines []dbtest.Engine
	}{
		{"", both}, // not even strict
		{"ANSI", both},
		{"ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT", both},
		{"TRADITIONAL", both},
		{"NO_ZERO_IN_DATE,ONLY_FULL_GROUP_BY,HIGH_NOT_PRECEDENCE,IGNORE_SPACE,NO_UNSIGNED_SUBTRACTION", both},
		{"MSSQL", []dbtest.Engine{dbtest.MariaDB}},
	} {
		for _, interpolate := range []string{"", "&interpolateParams=true"} {
			t.Run(c.mode+interpolate, func(t *testing.T) {
				t.Parallel()
				conformance.Run(t, conformance.With(conformance.SQL(), "sql_mode=%27"+c.mode+"%27"+interpolate, c.engines...), everything)
			})
		}
	}
}

// TestSQLModeRefused checks the modes that Holdfast refuses. In the first one an empty text is
// NULL. The others make all assignments of a statement at once, while Holdfast's statements
// rely on left-to-right order, so a lock would be granted twice.
func TestSQLModeRefused(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		if engine != dbtest.MariaDB {
			return // has no such mode
		}
		url := dbtest.DSN(t, engine)
		for mode, why := range map[string]string{
			"EMPTY_STRING_IS_NULL": "EMPTY_STRING_IS_NULL", "SIMULTANEOUS_ASSIGNMENT": "SIMULTANEOUS_ASSIGNMENT", "ORACLE": "SIMULTANEOUS_ASSIGNMENT",
		} {
			pool := dbtest.OpenSQL(t, url+"?sql_mode=%27"+mode+"%27")
			if _, err := holdfastsql.Open(t.Context(), pool, holdfast.Options{SingleOwner: true}); err == nil || !strings.Contains(err.Error(), why) {
				t.Errorf("%s: got %v", mode, err)
			}
		}
	})
}

// everything uses each lock once, with a key that needs escapes.
func everything(e *conformance.Env[*sql.Tx]) {
	const key = hostile.Key
	must := func(what string, err error) {
		e.Helper()
		if err != nil {
			e.Fatalf("%s: %v", what, err)
		}
	}
	l, err := sqllock.New(e.Ctx, e.DB, sqllock.Options{TTL: time.Minute})
	must("open", err)
	defer func() { _ = l.Close(e.Ctx) }()
	other, err := sqllock.New(e.Ctx, e.DB, sqllock.Options{TTL: time.Minute})
	must("open", err)
	defer func() { _ = other.Close(e.Ctx) }()

	var last int64
	for range 3 {
		lease, err := l.Acquire(e.Ctx, key)
		must("acquire", err)
		if lease.Token() <= last {
			e.Errorf("token %d after %d", lease.Token(), last)
		}
		last = lease.Token()
		if _, err := other.TryAcquire(e.Ctx, key); err == nil {
			e.Error("granted twice")
		}
		tx, err := e.Begin(e.Ctx, sql.LevelDefault)
		must("begin", err)
		must("lock", e.RowLocker().LockTx(e.Ctx, tx, key, time.Second)) // first: see rowlock.Locker.LockTx
		must("guard", l.Guard(e.Ctx, tx, lease.Term()))
		must("commit", e.End(e.Ctx, tx, true))
		must("say", lease.SetValue(e.Ctx, []byte(key)))
		info, found, err := other.Inspect(e.Ctx, key)
		must("inspect", err)
		if !found || !info.Held || string(info.Value) != key {
			e.Errorf("got %+v", info)
		}
		must("release", lease.Release(e.Ctx))

		shared, err := fairlock.New(l).AcquireShared(e.Ctx, key)
		must("share", err)
		second, err := fairlock.New(other).AcquireShared(e.Ctx, key)
		must("share", err)
		if _, err := fairlock.New(other).TryAcquire(e.Ctx, key); err == nil {
			e.Error("alone beside others")
		}
		must("release", shared.Release(e.Ctx))
		must("release", second.Release(e.Ctx))
		s, err := fairlock.New(l).Semaphore(key, 2)
		must("semaphore", err)
		permits, err := s.Acquire(e.Ctx, 2)
		must("permits", err)
		must("release", permits.Release(e.Ctx))
	}
	lease, err := l.Acquire(e.Ctx, key)
	must("acquire", err)
	had, err := other.ForceRelease(e.Ctx, key, 0, holdfast.Actor{By: "test", Reason: `a "reason" of one's own \`})
	must("force", err)
	if !had {
		e.Error("nobody had it")
	}
	_ = lease.Release(e.Ctx)

	store := e.Store(idempotency.Options{})
	for _, want := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
		op := conformance.Op(key)
		op.Request = "not the key, which is no UTF-8"
		r, err := idempotency.Do(e.Ctx, store, op, func(ctx context.Context, tx *sql.Tx) (string, error) {
			return key[:4], e.Effect(ctx, tx, key)
		})
		must("do", err)
		if r.Outcome != want || r.Value != key[:4] {
			e.Errorf("got %v, want %v", r, want)
		}
	}
	e.WantOnce(key)
}
