package rowlocks

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

// SessionLocks is the suite of keys that a dedicated transaction holds.
func SessionLocks[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Helper()
	for name, test := range map[string]func(*env[Tx]){
		"HoldAndRelease": holdAndRelease[Tx], "HoldEndsWithItsConnection": holdEnds[Tx], "HoldReleasedTooLate": holdReleasedLate[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, test)
		})
	}
}

func holdAndRelease[Tx any](e *env[Tx]) {
	l := e.RowLocker()
	if e.Engine == dbtest.SQLite {
		if _, err := l.Hold(e.Ctx, "k", holdfast.Forever); !errors.Is(err, holdfast.ErrUnsupported) {
			e.Errorf("got %v", err)
		}
		return
	}
	ctx, cancel := context.WithCancel(e.Ctx)
	held, err := l.Hold(ctx, "k", holdfast.Forever)
	e.Check(err)
	cancel() // bounds only the wait
	if _, err := l.Hold(e.Ctx, "k", holdfast.NoWait); !errors.Is(err, rowlock.ErrLockNotAvailable) {
		e.Errorf("a second one: %v", err)
	}
	if _, err := l.Hold(e.Ctx, "k", 50*time.Millisecond); !errors.Is(err, rowlock.ErrTimeout) {
		e.Errorf("a second one: %v", err)
	}
	short, cancel := context.WithTimeout(e.Ctx, 100*time.Millisecond)
	defer cancel()
	if _, err := l.Hold(short, "k", holdfast.Forever); !errors.Is(err, context.DeadlineExceeded) {
		e.Errorf("a second one: %v", err)
	}
	err = e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
		return l.LockTx(ctx, tx, "k", holdfast.NoWait)
	})
	if !errors.Is(err, rowlock.ErrLockNotAvailable) {
		e.Errorf("LockTx of the same key: %v", err)
	}
	time.Sleep(1500 * time.Millisecond) // longer than the interval between two checks of its connection
	if held.Context().Err() != nil {
		e.Errorf("it has ended: %v", context.Cause(held.Context()))
	}
	next := make(chan error)
	go func() {
		h, err := l.Hold(e.Ctx, "k", holdfast.Forever)
		if err == nil {
			err = h.Release(e.Ctx)
		}
		next <- err
	}()
	e.Check(held.Release(e.Ctx))
	e.Check(held.Release(e.Ctx))
	if cause := context.Cause(held.Context()); !errors.Is(cause, rowlock.ErrReleased) {
		e.Errorf("cause %v", cause)
	}
	e.Check(<-next)
	if n := e.InUse(); n != 0 {
		e.Errorf("%d connections are still out", n)
	}
	if _, err := l.Hold(e.Ctx, "", holdfast.Forever); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("got %v", err)
	}
}

func ofMySQL(e dbtest.Engine) string {
	return `SELECT id FROM ` + e.Sessions() + ` WHERE db = DATABASE() AND id <> CONNECTION_ID()`
}

// sessions contains, for each engine, the query for the sessions that may hold a lock here.
var sessions = map[dbtest.Engine]string{
	dbtest.Postgres: `SELECT DISTINCT l.pid FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relname = 'holdfast_locks' AND n.nspname = current_schema() AND l.pid <> pg_backend_pid()`,
	dbtest.TiDB:    ofMySQL(dbtest.TiDB),
	dbtest.MySQL:   ofMySQL(dbtest.MySQL),
	dbtest.MariaDB: ofMySQL(dbtest.MariaDB),
}

// holdEnds checks that a key is free as soon as the connection ends, and that the former holder
// learns of it.
func holdEnds[Tx any](e *env[Tx]) {
	if e.Engine == dbtest.SQLite {
		return // the engine has no such lock
	}
	held, next := e.overtakenHold()
	select {
	case <-held.Context().Done():
	case <-e.Ctx.Done():
		e.Fatal("the former holder's context goes on")
	}
	if err := held.Release(e.Ctx); !errors.Is(err, rowlock.ErrLost) {
		e.Errorf("got %v", err)
	}
	e.Check(next.Release(e.Ctx))
}

// holdReleasedLate checks that a release returns ErrLost after the connection ended, also before
// the holder has noticed.
func holdReleasedLate[Tx any](e *env[Tx]) {
	if e.Engine == dbtest.SQLite {
		return // the engine has no such lock
	}
	held, next := e.overtakenHold()
	if err := held.Release(e.Ctx); !errors.Is(err, rowlock.ErrLost) {
		e.Errorf("got %v", err)
	}
	e.Check(next.Release(e.Ctx))
}

// overtakenHold returns a hold whose connection was killed, and the hold that followed it.
func (e *env[Tx]) overtakenHold() (held, next *rowlock.SessionLock) {
	e.Helper()
	dbtest.Needs(e, e.Engine, dbtest.Kill)
	l := e.RowLocker()
	held, err := l.Hold(e.Ctx, "k", holdfast.Forever)
	e.Check(err)
	for _, id := range e.ints(sessions[e.Engine]) {
		e.EndSession(id)
	}
	next, err = l.Hold(e.Ctx, "k", holdfast.Forever)
	e.Check(err)
	return held, next
}

// ints reads a column of numbers on the audit pool.
func (e *env[Tx]) ints(query string) (list []int64) {
	e.Helper()
	rows, err := e.SQL.QueryContext(e.Ctx, query)
	e.Check(err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var n int64
		e.Check(rows.Scan(&n))
		list = append(list, n)
	}
	e.Check(rows.Err())
	return list
}
