package doctor_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestBlocked checks who is said to block a session that waits: for a locked row and for a running
// operation.
func TestBlocked(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		tells := e.Engine == dbtest.Postgres || e.Engine == dbtest.MySQL || e.Engine == dbtest.MariaDB
		if _, err := doctor.Blocked(e.Ctx, e.DB); !tells {
			if !errors.Is(err, holdfast.ErrUnsupported) {
				e.Errorf("got %v", err)
			}
			return
		} else if err != nil {
			e.Fatal(err)
		}
		rows := e.RowLocker()
		for what, lock := range map[string]func(run func(ctx context.Context, tx *sql.Tx)) error{
			"row": func(run func(ctx context.Context, tx *sql.Tx)) error {
				return e.DB.InTx(e.Ctx, func(ctx context.Context, tx *sql.Tx) error {
					err := rows.LockTx(ctx, tx, "blocked", dbtest.Hang)
					if err == nil {
						run(ctx, tx)
					}
					return err
				})
			},
			"operation": func(run func(ctx context.Context, tx *sql.Tx)) error {
				store := e.Store(idempotency.Options{Wait: dbtest.Hang}) // as in its own process: one asks the database once
				_, err := idempotency.Do(e.Ctx, store, conformance.Op("blocked"), func(ctx context.Context, tx *sql.Tx) (string, error) {
					run(ctx, tx)
					return "", nil
				})
				return err
			},
		} {
			holder, waits, end := make(chan string), make(chan error, 1), make(chan struct{})
			go func() {
				waits <- lock(func(ctx context.Context, tx *sql.Tx) {
					e.Check(e.Effect(ctx, tx, what)) // locks another table too
					holder <- e.SessionOf(tx)
					<-end
				})
			}()
			blocker := <-holder
			start := time.Now()
			second := make(chan error, 1)
			go func() { second <- lock(func(context.Context, *sql.Tx) {}) }()
			var found []doctor.Block
			e.Eventually(what+": it is seen to wait", func() bool {
				all, err := doctor.Blocked(e.Ctx, e.DB)
				e.Check(err)
				found = slices.DeleteFunc(all, func(b doctor.Block) bool { return b.Blocker.Session != blocker })
				return len(found) > 0
			})
			took := time.Since(start) + 2*time.Second // MySQL and MariaDB count whole seconds
			if b := found[0]; len(found) > 1 || b.Waiter == "" || b.Waiter == blocker || b.Blocker.User == "" || b.Blocker.State == "" || b.Waited < 0 || b.Waited > took || b.Blocker.Open < 0 || b.Blocker.Open > took+dbtest.Slack {
				e.Errorf("%s: got %+v after %v", what, found, took)
			}
			if e.Engine == dbtest.Postgres {
				seenByOthers(e)
			}
			close(end)
			e.Check(errors.Join(<-waits, <-second))
		}
	})
}

// TestBlockedByPrepared checks that a prepared transaction, which has no session, is said to block one that waits.
func TestBlockedByPrepared(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		if e.Engine != dbtest.Postgres && e.Engine != dbtest.MySQL && e.Engine != dbtest.MariaDB {
			return // the others do not tell who blocks whom
		}
		e.Must(`CREATE TABLE prepared_rows (k INT PRIMARY KEY)`)
		insert := `INSERT INTO prepared_rows VALUES (1)`
		name := "holdfast-" + rand.Text()
		prepare, undo := []string{`BEGIN`, insert, `PREPARE TRANSACTION '` + name + `'`}, `ROLLBACK PREPARED '`+name+`'`
		if e.InnoDB() {
			prepare, undo = []string{`XA START '` + name + `'`, insert, `XA END '` + name + `'`, `XA PREPARE '` + name + `'`}, `XA ROLLBACK '`+name+`'`
		} else {
			var most int
			if e.Check(e.SQL.QueryRowContext(e.Ctx, `SELECT current_setting('max_prepared_transactions')`).Scan(&most)); most == 0 {
				e.Skip("the server has no prepared transactions")
			}
		}
		conn, err := e.SQL.Conn(e.Ctx)
		e.Check(err)
		for _, statement := range prepare {
			_, err := conn.ExecContext(e.Ctx, statement)
			e.Check(err)
		}
		if err := conn.Raw(func(any) error { return driver.ErrBadConn }); !errors.Is(err, driver.ErrBadConn) {
			e.Fatal(err) // the session of an XA transaction has to end
		}
		e.Cleanup(func() { _, _ = e.SQL.ExecContext(context.Background(), undo) }) // else its table could not be dropped
		waits := make(chan error, 1)
		go func() {
			_, err := e.SQL.ExecContext(e.Ctx, insert)
			waits <- err
		}()
		var found []doctor.Block
		e.Eventually("it is seen to wait", func() bool { // other tests wait on the same server
			all, err := doctor.Blocked(e.Ctx, e.DB)
			e.Check(err)
			found = slices.DeleteFunc(all, func(b doctor.Block) bool {
				return b.Blocker.Session != "0" || !e.InnoDB() && !strings.Contains(b.Blocker.State, name)
			})
			return len(found) > 0
		})
		if b := found[0].Blocker; len(found) > 1 || !strings.Contains(b.State, "prepared") || b.Open < 0 || b.Open > dbtest.Hang {
			e.Errorf("got %+v", found)
		}
		e.Must(undo)
		e.Check(<-waits)
	})
}

// seenByOthers checks that a role without pg_monitor is told which sessions wait, and for whom.
func seenByOthers(e *conformance.Env[*sql.Tx]) {
	e.Helper()
	name, _, drop := e.Role()
	defer drop()
	e.Check(e.DB.InTx(e.Ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `SET LOCAL ROLE `+name); err != nil {
			return err
		}
		var waiter, session, user, client, state string
		var waited, open int64
		return tx.QueryRowContext(ctx, access.Of(e.DB).Dialect.Doctor.Blocked, 1).Scan(&waiter, &waited, &session, &user, &client, &state, &open)
	}))
}
