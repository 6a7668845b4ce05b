package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/conformance"
	"github.com/holdfast-go/holdfast/internal/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// limited is the handle of database/sql on a pool of at most n connections.
func limited(n int) conformance.Handle[*sql.Tx] {
	h := conformance.SQL()
	h.Open = func(tb testing.TB, dsn string, opts ...holdfast.Option) conformance.Pool[*sql.Tx] {
		tb.Helper()
		pool := dbtest.OpenSQL(tb, dsn)
		pool.SetMaxOpenConns(n)
		return conformance.SQLPool(tb, pool, opts...)
	}
	return h
}

// TestRowLocksPoolOfOne: the caller's transaction has the only connection, so a
// key's row cannot be made on another one.
func TestRowLocksPoolOfOne(t *testing.T) {
	t.Parallel()
	conformance.Run(t, limited(1), func(e *conformance.Env[*sql.Tx]) {
		l := e.Locker()
		setting := map[dbtest.Engine]string{
			dbtest.Postgres: `SELECT current_setting('lock_timeout')`,
			dbtest.MySQL:    `SELECT CONCAT(@@SESSION.innodb_lock_wait_timeout, '/', @@SESSION.max_execution_time)`,
			dbtest.MariaDB:  `SELECT CONCAT(@@SESSION.innodb_lock_wait_timeout, '/', @@SESSION.max_statement_time)`,
			dbtest.SQLite:   `PRAGMA busy_timeout`,
		}[e.Engine]
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
		for _, wait := range []sqllock.Wait{sqllock.UntilDone, sqllock.NoWait, sqllock.AtMost(time.Minute)} {
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
		// A wait that is cancelled, its transaction's context or not.
		holder := e.SQL
		other, err := holder.BeginTx(e.Ctx, nil)
		if err != nil {
			e.Fatal(err)
		}
		if _, err := other.ExecContext(e.Ctx, e.Rebind(`UPDATE holdfast_locks SET holder = 'x' WHERE name = $1`), []byte("r"+fmt.Sprintf("%+v", sqllock.UntilDone))); err != nil {
			e.Fatal(err)
		}
		for _, own := range []bool{false, true} {
			ctx, cancel := context.WithTimeout(e.Ctx, 300*time.Millisecond)
			begin := e.Ctx
			if own {
				begin = ctx
			}
			tx, err := e.Begin(begin, sql.LevelDefault)
			if err != nil {
				e.Fatal(err)
			}
			if err := l.LockTx(ctx, tx, fmt.Sprintf("%+v", sqllock.UntilDone), sqllock.UntilDone); !errors.Is(err, context.DeadlineExceeded) {
				e.Errorf("got %v", err)
			}
			cancel()
			_ = tx.Rollback()
			if read(&now); now != was {
				e.Errorf("the setting is %s on the pooled connection, and was %s", now, was)
			}
		}
		// One that ends at any time, also while the wait's setting is in place.
		for n := range 100 {
			ctx, cancel := context.WithTimeout(e.Ctx, time.Duration(n%10*300)*time.Microsecond)
			if tx, err := e.Begin(ctx, sql.LevelDefault); err == nil {
				// The statement under way does not end with the transaction's context.
				wait, stop := context.WithTimeout(e.Ctx, 100*time.Millisecond)
				_ = l.LockTx(wait, tx, fmt.Sprintf("%+v", sqllock.UntilDone), sqllock.UntilDone)
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

// TestRowLocksStampede: 64 transactions come together at a new key, on a pool
// that has connections to spare and on one that does not.
func TestRowLocksStampede(t *testing.T) {
	t.Parallel()
	for _, conns := range []int{72, 8} {
		t.Run(fmt.Sprint(conns), func(t *testing.T) {
			conformance.Run(t, limited(conns), func(e *conformance.Env[*sql.Tx]) {
				e.Must(`CREATE TABLE counter (n INT NOT NULL)`)
				e.Must(`INSERT INTO counter VALUES (0)`)
				l := e.Locker()
				errs := make(chan error, 64)
				var wg sync.WaitGroup
				for range cap(errs) {
					wg.Go(func() {
						errs <- e.DB.InTx(e.Ctx, holdfast.TxOptions{}, func(ctx context.Context, tx *sql.Tx) error {
							if err := l.LockTx(ctx, tx, "new", sqllock.UntilDone); err != nil {
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
	h.Open = func(tb testing.TB, dsn string, opts ...holdfast.Option) conformance.Pool[*sql.Tx] {
		tb.Helper()
		pool := dbtest.OpenSQL(tb, dsn)
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

// TestRowLocksNewKeys: transactions come together at a new key, and half of them
// roll back. Inserts of their own deadlock on InnoDB; LockTx does not.
func TestRowLocksNewKeys(t *testing.T) {
	t.Parallel()
	const crowd = 8
	conformance.Run(t, warm(2*crowd+1), func(e *conformance.Env[*sql.Tx]) {
		// together runs lock in transactions of its own and counts the deadlocks.
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
		if e.InnoDB() {
			n := 0
			for i := 0; i < 50 && n == 0; i++ {
				n = together(func(tx *sql.Tx) error {
					_, err := tx.ExecContext(e.Ctx, `INSERT INTO holdfast_locks (name, token, holder, granted_at, expires_at) VALUES (?, 1, '', 0, 0) ON DUPLICATE KEY UPDATE name = name`, fmt.Sprint("naive", i))
					return err
				})
			}
			if n == 0 {
				e.Error("the naive form did not deadlock")
			}
			e.Logf("the naive form: %d deadlocks of %d", n, crowd)
		}
		l := e.Locker()
		for i := range 20 {
			if n := together(func(tx *sql.Tx) error { return l.LockTx(e.Ctx, tx, fmt.Sprint(i), sqllock.UntilDone) }); n != 0 {
				e.Errorf("%d deadlocks", n)
			}
		}
	})
}

// TestRowLocksAnswerOnce: InTx runs again what the engine rolled back, and
// nothing that was only not to be had.
func TestRowLocksAnswerOnce(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		l := e.Locker()
		tx, err := e.Begin(e.Ctx, sql.LevelDefault)
		if err != nil {
			e.Fatal(err)
		}
		if err := l.LockTx(e.Ctx, tx, "k", sqllock.UntilDone); err != nil {
			e.Fatal(err)
		}
		for _, c := range []struct {
			wait sqllock.Wait
			want error
		}{{sqllock.NoWait, sqllock.ErrNotNow}, {sqllock.SkipLocked, sqllock.ErrNotNow}, {sqllock.AtMost(50 * time.Millisecond), sqllock.ErrTimeout}} {
			runs := 0
			err := e.DB.InTx(e.Ctx, holdfast.TxOptions{}, func(ctx context.Context, tx *sql.Tx) error {
				runs++
				return l.LockTx(ctx, tx, "k", c.wait)
			})
			if !errors.Is(err, c.want) || errors.Is(err, holdfast.ErrRetry) || runs != 1 {
				e.Errorf("%+v: %d runs, %v", c.wait, runs, err)
			}
		}
		// The transaction's own lock timeout does not bound a wait without an end.
		time.AfterFunc(1500*time.Millisecond, func() { _ = tx.Commit() })
		runs := 0
		err = e.DB.InTx(e.Ctx, holdfast.TxOptions{LockTimeout: 100 * time.Millisecond}, func(ctx context.Context, tx *sql.Tx) error {
			runs++
			return l.LockTx(ctx, tx, "k", sqllock.UntilDone)
		})
		if err != nil || runs != 1 {
			e.Errorf("%d runs, %v", runs, err)
		}
	})
}
