package rowlock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

// limited is the handle of database/sql on a pool of at most n connections.
func limited(n int) conformance.Handle[*sql.Tx] {
	h := conformance.SQL()
	h.Open = func(tb testing.TB, dsn string, opts ...holdfast.Options) conformance.Pool[*sql.Tx] {
		tb.Helper()
		pool := dbtest.OpenSQL(tb, dsn)
		pool.SetMaxOpenConns(n)
		return conformance.SQLPool(tb, pool, opts...)
	}
	return h
}

// TestRowLocksPoolOfOne runs on a pool whose only connection the caller's transaction uses, so
// the row of a key cannot be created on another connection.
func TestRowLocksPoolOfOne(t *testing.T) {
	t.Parallel()
	conformance.Run(t, limited(1), func(e *conformance.Env[*sql.Tx]) {
		l := e.RowLocker()
		setting := map[dbtest.Engine]string{
			dbtest.Postgres: `SELECT current_setting('lock_timeout')`,
			dbtest.MySQL:    `SELECT CONCAT(@@SESSION.innodb_lock_wait_timeout, '/', @@SESSION.max_execution_time)`,
			dbtest.MariaDB:  `SELECT CONCAT(@@SESSION.innodb_lock_wait_timeout, '/', @@SESSION.max_statement_time)`,
			dbtest.SQLite:   `PRAGMA busy_timeout`,
		}[e.Engine.Kin()]
		was, now := "", ""
		read := func(into *string) {
			tx, err := e.Begin(e.Ctx, sql.LevelDefault)
			if err != nil {
				e.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			if err := tx.QueryRowContext(e.Ctx, setting).Scan(into); err != nil {
				e.Error(err)
			}
		}
		read(&was)
		for _, wait := range []time.Duration{holdfast.Forever, holdfast.NoWait, time.Minute} {
			for _, commit := range []bool{false, true, true} {
				tx, err := e.Begin(e.Ctx, sql.LevelDefault)
				if err != nil {
					e.Fatal(err)
				}
				for range 2 {
					if err := l.LockTx(e.Ctx, tx, fmt.Sprintf("%+v", wait), wait); err != nil {
						e.Errorf("%+v: %v", wait, err)
					}
				}
				if err := e.End(e.Ctx, tx, commit); err != nil {
					e.Error(err)
				}
			}
		}
		// A wait that is cancelled, through the transaction's context or another one.
		holder := e.SQL
		other, err := holder.BeginTx(e.Ctx, nil)
		if err != nil {
			e.Fatal(err)
		}
		if _, err := other.ExecContext(e.Ctx, e.Rebind(`UPDATE holdfast_locks SET holder = 'x' WHERE owner = '' AND name = $1`), []byte("r"+fmt.Sprintf("%+v", holdfast.Forever))); err != nil {
			e.Fatal(err)
		}
		for _, own := range []bool{false, true} {
			ctx, cancel := context.WithCancel(e.Ctx)
			begin := e.Ctx
			if own {
				begin = ctx
			}
			tx, err := e.Begin(begin, sql.LevelDefault)
			if err != nil {
				e.Fatal(err)
			}
			time.AfterFunc(300*time.Millisecond, cancel)
			if err := l.LockTx(ctx, tx, fmt.Sprintf("%+v", holdfast.Forever), holdfast.Forever); !errors.Is(err, context.Canceled) {
				e.Errorf("got %v", err)
			}
			cancel()
			_ = tx.Rollback()
			if read(&now); now != was {
				e.Errorf("the setting is %s on the pooled connection, and was %s", now, was)
			}
		}
		// A transaction whose context ends at any time, also while the setting of the wait is in
		// place.
		for n := range 100 {
			ctx, cancel := context.WithTimeout(e.Ctx, time.Duration(n%10*300)*time.Microsecond)
			if tx, err := e.Begin(ctx, sql.LevelDefault); err == nil {
				// The running statement does not end with the transaction's context.
				wait, stop := context.WithTimeout(e.Ctx, 100*time.Millisecond)
				_ = l.LockTx(wait, tx, fmt.Sprintf("%+v", holdfast.Forever), holdfast.Forever)
				stop()
				_ = tx.Rollback()
			}
			cancel()
			if read(&now); now != was {
				e.Fatalf("after %d: the setting is %s on the pooled connection, and was %s", n, now, was)
			}
		}
		_ = other.Rollback()
		if read(&now); now != was {
			e.Errorf("the setting is %s on the pooled connection, and was %s", now, was)
		}
	})
}

// TestRowLocksStampede starts 64 transactions on a new key at once, on a pool with spare
// connections and on one without.
func TestRowLocksStampede(t *testing.T) {
	t.Parallel()
	for _, conns := range []int{24, 8} {
		t.Run(fmt.Sprint(conns), func(t *testing.T) {
			conformance.Run(t, limited(conns), func(e *conformance.Env[*sql.Tx]) {
				e.Must(`CREATE TABLE counter (n INT NOT NULL)`)
				e.Must(`INSERT INTO counter VALUES (0)`)
				l := e.RowLocker()
				errs := make(chan error, 20)
				var wg sync.WaitGroup
				for range cap(errs) {
					wg.Go(func() {
						errs <- e.DB.InTx(e.Ctx, func(ctx context.Context, tx *sql.Tx) error {
							if err := l.LockTx(ctx, tx, "new", holdfast.Forever); err != nil {
								return err
							}
							var n int
							if err := tx.QueryRowContext(ctx, `SELECT n FROM counter`).Scan(&n); err != nil {
								return err
							}
							_, err := tx.ExecContext(ctx, e.Rebind(`UPDATE counter SET n = $1`), n+1)
							return err
						})
					})
				}
				wg.Wait()
				close(errs)
				for err := range errs {
					if err != nil {
						e.Error(err)
					}
				}
				if n := e.Int(`SELECT n FROM counter`); n != cap(errs) {
					e.Errorf("%d of %d increments are there", n, cap(errs))
				}
			})
		})
	}
}

// warm is the handle of database/sql with n connections open and idle.
func warm(n int) conformance.Handle[*sql.Tx] {
	h := conformance.SQL()
	h.Open = func(tb testing.TB, dsn string, opts ...holdfast.Options) conformance.Pool[*sql.Tx] {
		tb.Helper()
		pool := dbtest.OpenSQL(tb, dsn)
		pool.SetMaxOpenConns(n)
		pool.SetMaxIdleConns(n)
		conns := make([]*sql.Conn, n)
		for i := range conns {
			var err error
			if conns[i], err = pool.Conn(tb.Context()); err != nil {
				tb.Fatal(err)
			}
		}
		for _, c := range conns {
			_ = c.Close()
		}
		return conformance.SQLPool(tb, pool, opts...)
	}
	return h
}

// TestRowLocksNewKeys starts transactions on a new key at once, and half of them roll back.
// With plain inserts this deadlocks on InnoDB; with LockTx it does not.
func TestRowLocksNewKeys(t *testing.T) {
	t.Parallel()
	const crowd = 8
	conformance.Run(t, warm(2*crowd+1), func(e *conformance.Env[*sql.Tx]) {
		// together runs lock in concurrent transactions and counts the deadlocks.
		together := func(lock func(tx *sql.Tx) error) (deadlocks int) {
			errs := make(chan error, crowd)
			for i := range crowd {
				go func() {
					tx, err := e.Begin(e.Ctx, sql.LevelDefault)
					if err == nil {
						err = lock(tx)
						time.Sleep(10 * time.Millisecond)
						_ = e.End(e.Ctx, tx, err == nil && i%2 == 1)
					}
					errs <- err
				}()
			}
			for range crowd {
				switch err := <-errs; {
				case e.DB.Retryable(err):
					deadlocks++
				case err != nil:
					e.Error(err)
				}
			}
			return deadlocks
		}
		if e.InnoDB() && e.Engine != dbtest.TiDB { // which has no gap locks
			n := 0
			for i := 0; i < 50 && n == 0; i++ {
				n = together(func(tx *sql.Tx) error {
					_, err := tx.ExecContext(e.Ctx, `INSERT INTO holdfast_locks (owner, name, token, holder, granted_at, expires_at) VALUES ('', ?, 1, '', 0, 0) ON DUPLICATE KEY UPDATE name = name`, fmt.Sprint("naive", i))
					return err
				})
			}
			if n == 0 {
				e.Error("the naive form did not deadlock")
			}
			e.Logf("the naive form: %d deadlocks of %d", n, crowd)
		}
		l := e.RowLocker()
		l.SetPoolWait(dbtest.Slack)
		for i := range 20 {
			if n := together(func(tx *sql.Tx) error { return l.LockTx(e.Ctx, tx, fmt.Sprint(i), holdfast.Forever) }); n != 0 {
				e.Errorf("%d deadlocks", n)
			}
		}
	})
}

// TestRowLocksAnswerOnce checks that InTx runs a transaction again only if the engine rolled
// it back, and not if the lock could not be acquired.
func TestRowLocksAnswerOnce(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		l := e.RowLocker()
		tx, err := e.Begin(e.Ctx, sql.LevelDefault)
		if err != nil {
			e.Fatal(err)
		}
		if err := l.LockTx(e.Ctx, tx, "k", holdfast.Forever); err != nil {
			e.Fatal(err)
		}
		for _, c := range []struct {
			wait time.Duration
			want error
		}{{holdfast.NoWait, rowlock.ErrLockNotAvailable}, {50 * time.Millisecond, rowlock.ErrTimeout}} {
			runs := 0
			err := e.DB.InTx(e.Ctx, func(ctx context.Context, tx *sql.Tx) error {
				runs++
				return l.LockTx(ctx, tx, "k", c.wait)
			})
			if !errors.Is(err, c.want) || errors.Is(err, holdfast.ErrRetry) || runs != 1 {
				e.Errorf("%+v: %d runs, %v", c.wait, runs, err)
			}
		}
		// The transaction's own lock timeout does not bound a wait without a limit.
		time.AfterFunc(1500*time.Millisecond, func() { _ = tx.Commit() })
		runs := 0
		err = e.DB.InTx(e.Ctx, func(ctx context.Context, tx *sql.Tx) error {
			runs++
			return l.LockTx(ctx, tx, "k", holdfast.Forever)
		}, holdfast.TxOptions{LockTimeout: 100 * time.Millisecond})
		if err != nil || runs != 1 {
			e.Errorf("%d runs, %v", runs, err)
		}
	})
}
