package sqllock_test

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// sequence records the names of statements, in the order in which they end.
type sequence struct {
	mu    sync.Mutex
	names []string
}

func (s *sequence) observe(_ context.Context, st holdfast.Statement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = append(s.names, st.Name)
}

func (s *sequence) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.names
	s.names = nil
	return names
}

// wakers is the engines on which a named lock wakes other processes.
func wakers() conformance.Handle[*sql.Tx] {
	return conformance.Only(conformance.SQL(), dbtest.MySQL, dbtest.MariaDB)
}

// waitFor starts a call that waits for the key.
func waitFor(e *conformance.Env[*sql.Tx], l *sqllock.Locker[*sql.Tx], key string) <-chan *sqllock.Lease {
	next := make(chan *sqllock.Lease, 1)
	go func() {
		lease, err := l.Acquire(e.Ctx, key)
		if err != nil {
			e.Error(err)
		}
		next <- lease
	}()
	return next
}

// processes reads a number of the sessions of the test's database that run a statement like this.
func processes(e *conformance.Env[*sql.Tx], what, like string) int {
	return e.Int(`SELECT COALESCE(` + what + `, 0) FROM ` + e.Engine.Sessions() + ` WHERE db = DATABASE() AND info LIKE ` + like + ` AND id <> CONNECTION_ID()`)
}

// TestWoken checks that a release wakes a waiter in another process: it takes the lock without a
// poll after the release.
func TestWoken(t *testing.T) {
	t.Parallel()
	seen := &sequence{}
	conformance.Run(t, wakers(), func(e *conformance.Env[*sql.Tx]) {
		lockers := e.Lockers(2, sqllock.Options{TTL: time.Hour})
		for _, l := range lockers {
			l.OnlyWoken()
		}
		holder, waiter := lockers[0], lockers[1]
		held := e.MustAcquire(holder, "key")
		for woken := 0; woken < 3; {
			next := waitFor(e, waiter, "key")
			e.Eventually("one process listens to the other", func() bool { return holder.Wakes() && waiter.Hears() })
			seen.take()
			e.MustRelease(held)
			if held = <-next; held == nil {
				return
			}
			names := seen.take()
			if i := slices.Index(names, "locks.release"); i >= 0 && !slices.Contains(names[i:], "locks.waits") {
				woken++
			}
			holder, waiter = waiter, holder
		}
		e.MustRelease(held)
		for _, l := range lockers {
			e.Check(l.Close(e.Ctx))
		}
		if n := e.SQL.Stats().InUse; n > 0 {
			e.Errorf("%d connections were not given back", n)
		}
		// The server ends a wait within a second.
		e.Eventually("no statement waits for a named lock", func() bool {
			return processes(e, `COUNT(*)`, `'%GET_LOCK%'`) == 0
		})
	}, holdfast.Options{Observers: []holdfast.Observer{seen.observe}})
}

// TestWakerIsCut checks that waiting calls still get the lock when the sessions that wake them are
// ended, and that they are woken again later.
func TestWakerIsCut(t *testing.T) {
	t.Parallel()
	conformance.Run(t, wakers(), func(e *conformance.Env[*sql.Tx]) {
		lockers := e.Lockers(2, sqllock.Options{TTL: time.Hour})
		holder, waiter := lockers[0], lockers[1]
		held := e.MustAcquire(holder, "key")
		for cut := range 2 {
			next := waitFor(e, waiter, "key")
			e.Eventually("one process listens to the other", func() bool { return holder.Wakes() && waiter.Hears() })
			if cut == 0 {
				e.Eventually("the session that listens is seen", func() bool {
					id := processes(e, `MAX(id)`, `'SELECT IS_USED_LOCK%'`)
					if id > 0 {
						e.EndSession(int64(id))
					}
					return id > 0
				})
				holding := e.Int(`SELECT COALESCE(MAX(IS_USED_LOCK(?)), 0)`, holder.NamedLock())
				e.EndSession(int64(holding))
			}
			e.MustRelease(held)
			if held = <-next; held == nil {
				return
			}
			holder, waiter = waiter, holder
		}
		e.MustRelease(held)
	})
}

// waitsFailed counts the events of waits that fail.
type waitsFailed struct{ n atomic.Int64 }

func (w *waitsFailed) Start(ctx context.Context, _ holdfast.Call) (context.Context, func(holdfast.CallResult)) {
	return ctx, nil
}
func (*waitsFailed) Statement(context.Context, holdfast.Statement) {}
func (w *waitsFailed) Event(_ context.Context, e holdfast.Event) {
	if e.Name == "lock.wait_failed" {
		w.n.Add(1)
	}
}

// TestWakerNeedsConnections checks that a pool which cannot spare two connections is left alone, and that an
// event says so once.
func TestWakerNeedsConnections(t *testing.T) {
	t.Parallel()
	for _, engine := range []dbtest.Engine{dbtest.MySQL, dbtest.MariaDB} {
		failed := &waitsFailed{}
		conformance.Run(t, conformance.Only(oneConn(), engine), func(e *conformance.Env[*sql.Tx]) {
			one, two := e.Locker(), e.Locker()
			held := e.MustAcquire(one, "key")
			next := waitFor(e, two, "key")
			e.Eventually("it has tried to listen", func() bool { return !two.CanWake() })
			e.Eventually("an event says so", func() bool { return failed.n.Load() > 0 })
			e.MustRelease(held)
			if lease := <-next; lease != nil {
				e.MustRelease(lease)
			}
			if n := failed.n.Load(); n > 2 { // of each Locker
				e.Errorf("%d events", n)
			}
		}, holdfast.Options{Tracers: []holdfast.Tracer{failed}})
	}
}

// TestStays checks that a process whose end frees its locks holds its named lock before anybody waits, and again
// after the connection with it was lost: its end then wakes those that have only begun to wait.
func TestStays(t *testing.T) {
	t.Parallel()
	conformance.Run(t, wakers(), func(e *conformance.Env[*sql.Tx]) {
		l := e.LockerWith(sqllock.Options{TTL: time.Hour, ReleaseOnDisconnect: true})
		holding := func(other int) (id int) {
			e.Eventually("it holds its named lock", func() bool {
				id = e.Int(`SELECT COALESCE(MAX(IS_USED_LOCK(?)), 0)`, l.NamedLock())
				return id > 0 && id != other && l.Wakes()
			})
			return id
		}
		id := holding(0)
		e.EndSession(int64(id))
		holding(id)
	})
}
