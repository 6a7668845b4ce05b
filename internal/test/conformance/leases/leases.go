package leases

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// Suite is the suite of the lease locks. The tests on one engine share a database, as users of
// one table do, and have separate pools and keys. On SQLite, where a guard locks the whole
// database, each test has its own database.
func Suite[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		if !h.Runs(engine) {
			return // the engine has no such handle
		}
		base := newEnv(t, h, engine)
		for name, f := range map[string]func(*env[Tx]){
			"Life":                   leaseLife[Tx],
			"LateRelease":            leaseLateRelease[Tx],
			"Renewal":                leaseRenewal[Tx],
			"TwinKeys":               leaseTwinKeys[Tx],
			"Do":                     leaseDo[Tx],
			"InTx":                   leaseInTx[Tx],
			"InTx/Again":             leaseInTxAgain[Tx],
			"Wait/Line":              leaseLine[Tx],
			"Wait/Between":           leaseBetween[Tx],
			"Wait/Turns":             leaseTurns[Tx],
			"Close/Ends":             leaseClose[Tx],
			"Close/InFlight":         leaseCloseInFlight[Tx],
			"Input/Bad":              leaseBadInput[Tx],
			"Input/BadGuard":         leaseBadGuard[Tx],
			"Input/NoTables":         leaseNoTables[Tx],
			"Time/Fold":              leaseFold[Tx],
			"Time/ClientClock":       leaseClientClock[Tx],
			"Time/Steps":             leaseClockSteps[Tx],
			"Lost/Replies":           leaseLostReplies[Tx],
			"Lost/Commit":            leaseRefusedAtCommit[Tx],
			"Guard/OldSnapshot":      leaseOldSnapshot[Tx],
			"Guard/Renewal":          leaseGuardAndRenewal[Tx],
			"Guard/TryAnswers":       leaseTryAnswers[Tx],
			"Guard/Refusals":         leaseGuardRefusals[Tx],
			"Guard/TryBehindRelease": leaseTryBehindRelease[Tx],
			"Cancelled/Insert":       leaseCancelledBehind[Tx](cancelledInsert),
			"Cancelled/Floor":        leaseCancelledBehind[Tx](cancelledFloor),
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				if name == "Cancelled/Floor" || name == "Cancelled/Insert" || name == "Lost/Commit" { // no other test can acquire, or wait for, a lock while these run
					f(newEnv(t, h, engine))
					return
				}
				f(leaseEnv(t, base))
			})
		}
	})
}

// leaseEnv returns base for a subtest.
func leaseEnv[Tx any](t *testing.T, base *env[Tx]) *env[Tx] {
	t.Helper()
	if base.Engine == dbtest.SQLite {
		return newEnv(t, base.Handle, base.Engine)
	}
	ctx, cancel := context.WithTimeout(t.Context(), conformance.Timeout) // starts when the test's turn comes
	t.Cleanup(cancel)
	e := *base
	e.T, e.Ctx = t, ctx
	e.Pool = e.Handle.Open(t, e.DSN)
	return &e
}

// wantHeld fails if l can acquire the lock on key now.
func (e *env[Tx]) wantHeld(l *sqllock.Locker[Tx], key string) *sqllock.HeldError {
	e.Helper()
	lease, err := l.TryAcquire(e.Ctx, key)
	var held *sqllock.HeldError
	if !errors.As(err, &held) || !errors.Is(err, sqllock.ErrHeld) {
		e.Errorf("the lock on %.40q was to be had: %v, %v", key, lease, err)
		return &sqllock.HeldError{}
	}
	return held
}

// wantFree fails unless l can acquire the lock on key now. A try that meets a row locked by
// another session's statement gets a HeldError with no remaining time, and wantFree tries again.
func (e *env[Tx]) wantFree(l *sqllock.Locker[Tx], key string) *sqllock.Lease {
	e.Helper()
	for end := time.Now().Add(dbtest.Hang); ; time.Sleep(10 * time.Millisecond) {
		lease, err := l.TryAcquire(e.Ctx, key)
		var held *sqllock.HeldError
		switch {
		case err == nil:
			return lease
		case !errors.As(err, &held) || held.Remaining > 0 || time.Now().After(end):
			e.Fatalf("the lock on %.40q was not to be had: %v", key, err)
		}
	}
}

// leaseRow returns the name of a lease's row in the table.
func leaseRow(key string) []byte { return append([]byte("l"), key...) }

// rowInt reads a number from a lock's row; {now} stands for the database's clock.
func (e *env[Tx]) rowInt(key, expr string) int {
	e.Helper()
	return e.Int(e.now(`SELECT `+expr+` FROM holdfast_locks WHERE owner = '' AND name = $1`), leaseRow(key))
}

// now replaces {now} in a query by the engine's clock.
func (e *env[Tx]) now(query string) string {
	return strings.ReplaceAll(query, "{now}", access.Of(e.DB).Dialect.Now)
}

// expired waits until the row has expired.
func (e *env[Tx]) expired(key string) {
	e.Helper()
	e.Eventually("the row expires", func() bool { return e.rowInt(key, `CASE WHEN expires_at <= {now} THEN 1 ELSE 0 END`) == 1 })
}

// guarded runs f in a transaction at level, after a guard.
func (e *env[Tx]) guarded(l *sqllock.Locker[Tx], level sql.IsolationLevel, term sqllock.Term, f func(tx Tx)) {
	e.Helper()
	tx := e.BeginTx(level)
	if err := l.Guard(e.Ctx, tx, term); err != nil {
		e.Fatalf("guard at %v: %v", level, err)
	}
	f(tx)
	e.EndTx(tx, true)
}

// leaseLevels returns the isolation levels that callers can use on the engine.
func (e *env[Tx]) leaseLevels() []sql.IsolationLevel {
	switch e.Engine {
	case dbtest.SQLite:
		return []sql.IsolationLevel{sql.LevelDefault} // the default is serializable
	case dbtest.Postgres:
		return []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}
	case dbtest.TiDB:
		return []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead}
	}
	return []sql.IsolationLevel{sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}
}

// timed returns the duration of f.
func timed(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}
