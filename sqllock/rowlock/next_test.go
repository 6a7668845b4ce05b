package rowlock_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

type job struct {
	ID    int64  `db:"id"`
	State string `db:"state"`
}

func jobs(e *conformance.Env[*sql.Tx], n int) *rowlock.Table[job, *sql.Tx] {
	e.Helper()
	e.Must(`CREATE TABLE jobs (id BIGINT NOT NULL PRIMARY KEY, state VARCHAR(10) NOT NULL)`)
	for i := range n {
		e.Must(`INSERT INTO jobs VALUES ($1, 'new')`, i+1)
	}
	t, err := rowlock.NewTable[job](e.Ctx, e.DB, holdfast.TableSpec{Table: "jobs", Key: []string{"id"}})
	if err != nil {
		e.Fatal(err)
	}
	return t
}

// TestNextPoolIsTaken checks workers that use all connections of their pool. None is left for
// a separate search, and the workers do not wait for each other's connections.
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
					err := e.DB.InTx(e.Ctx, func(ctx context.Context, tx *sql.Tx) error {
						if first && e.DB.Capabilities().RowLocks {
							together.Done()
							together.Wait() // all workers have a connection before one returns its own
						}
						first = false
						got, err := table.NextTx(ctx, tx, 4, holdfast.Where("state", "=", "new"))
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

// TestNextStatements counts the statements of NextTx, which do not depend on the number of
// rows.
func TestNextStatements(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		dbtest.Needs(t, engine, dbtest.OneStatement)
		var mu sync.Mutex
		var sent []string
		e := conformance.New(t, conformance.SQL(), engine, holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
			if strings.HasPrefix(s.Name, "admission") {
				return // once for each connection
			}
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, s.Name)
		}}})
		table := jobs(e, 40)
		for _, n := range []int{1, 30} {
			tx, err := e.Begin(e.Ctx, sql.LevelDefault)
			if err != nil {
				e.Fatal(err)
			}
			sent = nil
			got, err := table.NextTx(e.Ctx, tx, n, holdfast.Where("state", "=", "new"))
			if err != nil || len(got) != n {
				e.Errorf("%d rows, %v", len(got), err)
			}
			if want := map[dbtest.Engine]int{dbtest.Postgres: 1, dbtest.MySQL: 4, dbtest.MariaDB: 4, dbtest.SQLite: 6}[e.Engine.Kin()]; len(sent) != want {
				e.Errorf("%d rows: %d statements, want %d: %v", n, len(sent), want, sent)
			}
			_ = tx.Rollback()
		}
	})
}
