package holdfastsql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/sqllock"
)

// diary is an observer and a tracer that writes each call of it into a table, with the context that
// it gets and through the pool that Holdfast uses.
type diary struct {
	*testing.T

	mu     sync.Mutex
	pool   *sql.DB
	write  bool
	said   int // the writes that said ok
	called map[string]int
}

func (d *diary) note(ctx context.Context, what string) {
	if core.Keeps(ctx) || core.Running(ctx) {
		d.Errorf("%s has a context with Holdfast's marks", what)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.called[what]++
	if !d.write {
		return
	}
	conn, err := d.pool.Conn(ctx)
	if err != nil {
		return // the context of an event may have ended
	}
	defer func() { _ = conn.Close() }()
	var commits int
	if err := conn.QueryRowContext(ctx, `SELECT @@autocommit`).Scan(&commits); err == nil && commits == 0 {
		d.Errorf("%s got a session that does not commit its write", what)
	}
	if _, err := conn.ExecContext(ctx, `INSERT INTO diary (what) VALUES ('`+what+`')`); err == nil {
		d.said++
	}
}

// check closes the sessions, and so rolls back what they have not committed.
func (d *diary) check() {
	d.Helper()
	d.pool.SetMaxIdleConns(0)
	var there int
	if err := d.pool.QueryRowContext(d.Context(), `SELECT COUNT(*) FROM diary`).Scan(&there); err != nil || there != d.said {
		d.Errorf("%d writes said ok, and %d are there: %v", d.said, there, err)
	}
	d.pool.SetMaxIdleConns(10)
}

func (d *diary) observe(ctx context.Context, _ holdfast.Statement) { d.note(ctx, "observer") }

// Statement implements holdfast.Tracer.
func (d *diary) Statement(ctx context.Context, _ holdfast.Statement) { d.note(ctx, "statement") }

// Start implements holdfast.Tracer.
func (d *diary) Start(ctx context.Context, _ holdfast.Call) (context.Context, func(holdfast.CallResult)) {
	d.note(ctx, "start")
	return ctx, nil
}

// Event implements holdfast.Tracer.
func (d *diary) Event(ctx context.Context, _ holdfast.Event) { d.note(ctx, "event") }

// ownConnector is a connector of the program's, below Holdfast's.
type ownConnector struct {
	driver.Connector

	d *diary
}

// Connect implements driver.Connector. A connector that fetches a password does so under ctx.
func (c ownConnector) Connect(ctx context.Context) (driver.Conn, error) {
	if core.Keeps(ctx) || core.Running(ctx) {
		c.d.Error("the driver's Connect has a context with Holdfast's marks")
	}
	return c.Connector.Connect(ctx)
}

// TestCallbacksGetTheProgramsContext writes in every callback that gets a context, through the pool. A write that
// said ok is there: none ran on a session that Holdfast keeps, which does not commit it. Two DBs share
// the pool, so that the second one admits a session while others are kept.
func TestCallbacksGetTheProgramsContext(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		d := &diary{T: t, called: map[string]int{}}
		d.pool = dbtest.OpenConnector(t, dbtest.DSN(t, e), func(c driver.Connector) driver.Connector {
			return holdfastsql.Connector(ownConnector{c, d})
		})
		if err := migrations.Up(t.Context(), d.pool); err != nil {
			t.Fatal(err)
		}
		if _, err := d.pool.ExecContext(t.Context(), `CREATE TABLE diary (what VARCHAR(20))`); err != nil {
			t.Fatal(err)
		}
		var dbs []*holdfast.DB[*sql.Tx]
		for range 2 {
			db, err := holdfastsql.Open(t.Context(), d.pool, holdfast.Options{SingleOwner: true, Observers: []holdfast.Observer{d.observe}, Tracers: []holdfast.Tracer{d}})
			if err != nil {
				t.Fatal(err)
			}
			dbs = append(dbs, db)
		}
		// Several kept sessions, all idle: each transaction begins within the one before.
		var nest func(db *holdfast.DB[*sql.Tx], depth int) error
		nest = func(db *holdfast.DB[*sql.Tx], depth int) error {
			return db.InTx(t.Context(), func(context.Context, *sql.Tx) error {
				if depth == 0 {
					return nil
				}
				return nest(db, depth-1)
			})
		}
		if e == dbtest.MySQL || e == dbtest.MariaDB { // where Holdfast keeps sessions
			if err := nest(dbs[0], 3); err != nil {
				t.Fatal(err)
			}
			d.write = true
			if err := nest(dbs[1], 1); err != nil {
				t.Fatal(err)
			}
			d.check()
		}
		for _, db := range dbs {
			store, err := idempotency.New(t.Context(), db)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := idempotency.Do(t.Context(), store, idempotency.Op{Name: "refund", Key: "k", Request: 1}, func(context.Context, *sql.Tx) (int, error) { return 1, nil }); err != nil {
				t.Fatal(err)
			}
			locker, err := sqllock.New(t.Context(), db)
			if err != nil {
				t.Fatal(err)
			}
			lease, err := locker.Acquire(t.Context(), "key")
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(lease.Release(t.Context()), locker.Close(t.Context())); err != nil {
				t.Fatal(err)
			}
		}
		d.check()
		for _, what := range []string{"observer", "statement", "start", "event"} {
			if d.called[what] == 0 {
				t.Errorf("%s was never called", what)
			}
		}
	})
}
