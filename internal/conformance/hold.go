package conformance

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// Hold is the suite of keys that are held by a transaction of their own.
func Hold[Tx any](t *testing.T, h Handle[Tx]) {
	t.Helper()
	for name, test := range map[string]func(*Env[Tx]){
		"HoldAndRelease": holdAndRelease[Tx], "HoldEndsWithItsConnection": holdEnds[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			Run(t, h, test)
		})
	}
}

func holdAndRelease[Tx any](e *Env[Tx]) {
	l := e.locker("one")
	if e.Engine == dbtest.SQLite {
		if _, err := l.Hold(e.Ctx, "k", sqllock.UntilDone); !errors.Is(err, holdfast.ErrUnsupported) {
			e.Errorf("got %v", err)
		}
		return
	}
	ctx, cancel := context.WithCancel(e.Ctx)
	held, err := l.Hold(ctx, "k", sqllock.UntilDone)
	e.must(err)
	cancel() // bounds the wait alone
	if _, err := l.Hold(e.Ctx, "k", sqllock.NoWait); !errors.Is(err, sqllock.ErrNotNow) {
		e.Errorf("a second one: %v", err)
	}
	if _, err := l.Hold(e.Ctx, "k", sqllock.AtMost(50*time.Millisecond)); !errors.Is(err, sqllock.ErrTimeout) {
		e.Errorf("a second one: %v", err)
	}
	short, cancel := context.WithTimeout(e.Ctx, 100*time.Millisecond)
	defer cancel()
	if _, err := l.Hold(short, "k", sqllock.UntilDone); !errors.Is(err, context.DeadlineExceeded) {
		e.Errorf("a second one: %v", err)
	}
	err = e.DB.InTx(e.Ctx, holdfast.TxOptions{}, func(ctx context.Context, tx Tx) error {
		return l.LockTx(ctx, tx, "k", sqllock.NoWait)
	})
	if !errors.Is(err, sqllock.ErrNotNow) {
		e.Errorf("LockTx of the same key: %v", err)
	}
	time.Sleep(1500 * time.Millisecond) // beyond a look at its connection
	if held.Context().Err() != nil {
		e.Errorf("it has ended: %v", context.Cause(held.Context()))
	}
	next := make(chan error)
	go func() {
		h, err := l.Hold(e.Ctx, "k", sqllock.UntilDone)
		if err == nil {
			err = h.Release(e.Ctx)
		}
		next <- err
	}()
	e.must(held.Release(e.Ctx))
	e.must(held.Release(e.Ctx))
	if cause := context.Cause(held.Context()); !errors.Is(cause, sqllock.ErrReleased) {
		e.Errorf("cause %v", cause)
	}
	e.must(<-next)
	if n := e.InUse(); n != 0 {
		e.Errorf("%d connections are still out", n)
	}
	if _, err := l.Hold(e.Ctx, "", sqllock.UntilDone); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("got %v", err)
	}
}

// sessions lists those that may hold a lock here.
var sessions = map[dbtest.Engine]string{
	dbtest.Postgres: `SELECT DISTINCT l.pid FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relname = 'holdfast_locks' AND n.nspname = current_schema() AND l.pid <> pg_backend_pid()`,
	dbtest.MySQL:   `SELECT PROCESSLIST_ID FROM performance_schema.threads WHERE PROCESSLIST_DB = DATABASE() AND PROCESSLIST_ID <> CONNECTION_ID()`,
	dbtest.MariaDB: `SELECT ID FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND ID <> CONNECTION_ID()`,
}

// holdEnds: the key is free as soon as the connection ends, and its former
// holder hears of it.
func holdEnds[Tx any](e *Env[Tx]) {
	if e.Engine == dbtest.SQLite {
		return // it has none
	}
	l := e.locker("one")
	held, err := l.Hold(e.Ctx, "k", sqllock.UntilDone)
	e.must(err)
	for _, id := range e.ints(sessions[e.Engine]) {
		if e.Engine == dbtest.Postgres {
			e.Must(`SELECT pg_terminate_backend($1)`, id)
		} else {
			_, _ = e.SQL.ExecContext(e.Ctx, `KILL `+strconv.FormatInt(id, 10)) // it may have ended meanwhile
		}
	}
	next, err := l.Hold(e.Ctx, "k", sqllock.UntilDone)
	e.must(err)
	select {
	case <-held.Context().Done():
	case <-e.Ctx.Done():
		e.Fatal("the former holder's context goes on")
	}
	if err := held.Release(e.Ctx); !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("got %v", err)
	}
	e.must(next.Release(e.Ctx))
}

// ints reads a column of numbers on the audit's pool.
func (e *Env[Tx]) ints(query string) (list []int64) {
	e.Helper()
	rows, err := e.SQL.QueryContext(e.Ctx, query)
	e.must(err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var n int64
		e.must(rows.Scan(&n))
		list = append(list, n)
	}
	e.must(rows.Err())
	return list
}
