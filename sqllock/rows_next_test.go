package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/conformance"
	"github.com/holdfast-go/holdfast/internal/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

type job struct {
	ID    int64  `db:"id"`
	State string `db:"state"`
}

func jobs(e *conformance.Env[*sql.Tx], n int) *sqllock.Table[job, *sql.Tx] {
	e.Helper()
	e.Must(`CREATE TABLE jobs (id BIGINT NOT NULL PRIMARY KEY, state VARCHAR(10) NOT NULL)`)
	for i := range n {
		e.Must(`INSERT INTO jobs VALUES ($1, 'new')`, i+1)
	}
	t, err := sqllock.NewTable[job](e.Ctx, e.Locker(), sqllock.TableSpec{Table: "jobs", Key: []string{"id"}})
	if err != nil {
		e.Fatal(err)
	}
	return t
}

// TestNextPoolIsTaken: the workers have all connections of their pool, so there
// is none to search on; they do not wait for each other's.
func TestNextPoolIsTaken(t *testing.T) {
	t.Parallel()
	const workers = 3
	conformance.Run(t, limited(workers), func(e *conformance.Env[*sql.Tx]) {
		table := jobs(e, 60)
		var together, done sync.WaitGroup
		var handled atomic.Int64
		if e.DB.Capabilities().RowLocks {
			together.Add(workers)
		}
		for range workers {
			done.Go(func() {
				first := true
				for found := 1; found > 0; {
					err := e.DB.InTx(e.Ctx, holdfast.TxOptions{}, func(ctx context.Context, tx *sql.Tx) error {
						if first && e.DB.Capabilities().RowLocks {
							together.Done()
							together.Wait() // nobody gives a connection back before all have one
						}
						first = false
						got, err := table.NextTx(ctx, tx, 4, sqllock.Where("state", "=", "new"))
						found = len(got)
						for _, j := range got {
							r, failed := tx.ExecContext(ctx, e.Rebind(`UPDATE jobs SET state = 'done' WHERE id = $1 AND state = 'new'`), j.ID)
							if err = errors.Join(err, failed); failed == nil {
								n, _ := r.RowsAffected()
								handled.Add(n)
							}
						}
						return err
					})
					if err != nil {
						e.Error(err)
						return
					}
				}
			})
		}
		done.Wait()
		if n := e.Int(`SELECT COUNT(*) FROM jobs WHERE state = 'new'`); n != 0 {
			e.Errorf("%d jobs are left", n)
		}
		if n := handled.Load(); n != 60 {
			e.Errorf("%d jobs were handled, of 60", n)
		}
	})
}

// TestNextStatements counts what NextTx sends: how many rows it takes makes no
// difference.
func TestNextStatements(t *testing.T) {
	t.Parallel()
	w := new(wire)
	conformance.Run(t, w.handle(2), func(e *conformance.Env[*sql.Tx]) {
		table := jobs(e, 40)
		for _, n := range []int{1, 30} {
			tx, err := e.Begin(e.Ctx, sql.LevelDefault)
			if err != nil {
				e.Fatal(err)
			}
			w.take()
			got, err := table.NextTx(e.Ctx, tx, n, sqllock.Where("state", "=", "new"))
			calls, _ := w.take()
			if err != nil || len(got) != n {
				e.Errorf("%d rows, %v", len(got), err)
			}
			if want := map[dbtest.Engine]int{dbtest.Postgres: 1, dbtest.MySQL: 4, dbtest.MariaDB: 4, dbtest.SQLite: 6}[e.Engine]; len(calls) != want {
				e.Errorf("%d rows: %d statements, want %d: %v", n, len(calls), want, calls)
			}
			_ = tx.Rollback()
		}
	})
}
