package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

// Locker opens a Locker on the environment's handle, and fails if it cannot be closed when the
// test ends. Lockers share no memory, as in two processes.
func (e *Env[Tx]) Locker() *sqllock.Locker[Tx] {
	e.Helper()
	l, err := sqllock.New(e.Ctx, e.DB)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		if err := l.Close(context.WithoutCancel(e.Ctx)); err != nil {
			e.Errorf("closing the locker: %v", err)
		}
	})
	return l
}

// LockerWith opens a Locker with options, which is closed when the test ends.
func (e *Env[Tx]) LockerWith(o sqllock.Options) *sqllock.Locker[Tx] {
	e.Helper()
	return e.LockerOn(e.DB, o)
}

// LockerOn is LockerWith on another pool.
func (e *Env[Tx]) LockerOn(db *holdfast.DB[Tx], o sqllock.Options) *sqllock.Locker[Tx] {
	e.Helper()
	l, err := sqllock.New(e.Ctx, db, o)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = l.Close(context.WithoutCancel(e.Ctx)) })
	return l
}

// Lockers opens n Lockers that share no memory, as in n processes. The default TTL is 20 s.
func (e *Env[Tx]) Lockers(n int, o sqllock.Options) []*sqllock.Locker[Tx] {
	e.Helper()
	return e.LockersOn(e.DB, n, o)
}

// LockersOn is Lockers on another pool.
func (e *Env[Tx]) LockersOn(db *holdfast.DB[Tx], n int, o sqllock.Options) []*sqllock.Locker[Tx] {
	e.Helper()
	if o.TTL == 0 {
		o.TTL = dbtest.Hang // nothing expires because the machine is busy
	}
	list := make([]*sqllock.Locker[Tx], n)
	for i := range list {
		l, err := sqllock.New(e.Ctx, db, o)
		if err != nil {
			e.Fatal(err)
		}
		e.Cleanup(func() { _ = l.Close(context.Background()) })
		list[i] = l
	}
	return list
}

// RowLocker opens a rowlock.Locker on the environment's handle. Lockers share no memory, as in
// two processes.
func (e *Env[Tx]) RowLocker() *rowlock.Locker[Tx] {
	e.Helper()
	l, err := rowlock.New(e.Ctx, e.DB)
	if err != nil {
		e.Fatal(err)
	}
	return l
}

// TryAcquire acquires a lock that must be free now.
func (e *Env[Tx]) TryAcquire(l *sqllock.Locker[Tx], key string, opts ...sqllock.AcquireOptions) *sqllock.Lease {
	e.Helper()
	lease, err := l.TryAcquire(e.Ctx, key, opts...)
	if err != nil {
		e.Fatal(err)
	}
	return lease
}

// MustAcquire waits for a lock and fails on an error.
func (e *Env[Tx]) MustAcquire(l *sqllock.Locker[Tx], key string, opts ...sqllock.AcquireOptions) *sqllock.Lease {
	e.Helper()
	lease, err := l.Acquire(e.Ctx, key, opts...)
	if err != nil {
		e.Fatalf("acquire %.40q: %v", key, err)
	}
	return lease
}

// MustRelease releases a lease that must still be held.
func (e *Env[Tx]) MustRelease(lease *sqllock.Lease) {
	e.Helper()
	if err := lease.Release(e.Ctx); err != nil {
		e.Errorf("release %.40q: %v", lease.Key(), err)
	}
}

// WantEnded waits until the lease's context ends and fails unless its cause is cause.
func (e *Env[Tx]) WantEnded(lease *sqllock.Lease, cause error) {
	e.Helper()
	select {
	case <-lease.Context().Done():
	case <-e.Ctx.Done():
		e.Fatal("the lease's context does not end")
	}
	if err := context.Cause(lease.Context()); !errors.Is(err, cause) {
		e.Errorf("the lease's context ended with %v, want %v", err, cause)
	}
}

// Tickets counts the tickets of all keys, of all kinds.
func (e *Env[Tx]) Tickets() int {
	e.Helper()
	return e.Int(`SELECT COUNT(*) FROM holdfast_tickets`)
}

// Waiters counts the sessions that wait for a lock in this test's database.
func (e *Env[Tx]) Waiters() int {
	e.Helper()
	time.Sleep(150 * time.Millisecond) // MariaDB caches its answer until 100 ms after the last query
	return e.Int(map[dbtest.Engine]string{
		dbtest.Postgres: `SELECT count(DISTINCT a.pid) FROM pg_stat_activity a JOIN pg_locks l ON l.pid = a.pid
WHERE l.relation = 'holdfast_locks'::regclass AND a.wait_event_type = 'Lock'`,
		dbtest.MySQL: `SELECT COUNT(*) FROM performance_schema.data_locks WHERE object_schema = DATABASE() AND lock_status = 'WAITING'`,
		dbtest.MariaDB: `SELECT COUNT(*) FROM information_schema.INNODB_LOCK_WAITS w JOIN information_schema.INNODB_LOCKS l ON l.lock_id = w.requested_lock_id
WHERE l.lock_table LIKE CONCAT('%', DATABASE(), '%')`,
		dbtest.Vitess: `SELECT COUNT(*) FROM performance_schema.data_locks WHERE object_schema IN (DATABASE(), CONCAT('vt_', DATABASE())) AND lock_status = 'WAITING'`,
		dbtest.TiDB:   `SELECT COUNT(*) FROM information_schema.tidb_trx WHERE db = DATABASE() AND state = 'LockWaiting'`,
	}[e.Engine])
}

// Waits returns when a transaction waits for a row. On SQLite nothing shows it.
func (e *Env[Tx]) Waits() {
	e.Helper()
	if !e.DB.Capabilities().RowLocks {
		return
	}
	e.Eventually("a transaction waits", func() bool {
		if e.Engine == dbtest.Postgres {
			return e.Int(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
		}
		return e.Waiters() > 0
	})
}
