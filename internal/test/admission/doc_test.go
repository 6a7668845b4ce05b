// Package admission tests that every environment is refused by name, or that the promises hold
// in it. It runs each rule of the engines' lists (dialect.Admission) with and without the rule,
// and the promises under many settings of sessions and drivers.
package admission_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

func TestMain(m *testing.M) { dbtest.VerifyNoLeaks(m) }

// on lists the engines that a case runs on.
type on []dbtest.Engine

var (
	postgres = on{dbtest.Postgres}
	mysql    = on{dbtest.MySQL}
	mariadb  = on{dbtest.MariaDB}
	innodb   = on{dbtest.MySQL, dbtest.MariaDB}
	sqlite   = on{dbtest.SQLite}
)

// each runs f on a migrated database of each engine.
func (es on) each(t *testing.T, f func(t *testing.T, url string)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		for _, want := range es {
			if e == want {
				f(t, migrated(t, e))
			}
		}
	})
}

func migrated(t *testing.T, e dbtest.Engine) string {
	t.Helper()
	url, _ := dbtest.Prepared(t, e, "admission", func(db *sql.DB) {
		if err := migrations.Up(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		for _, q := range tables(e) {
			if _, err := db.ExecContext(t.Context(), q); err != nil {
				t.Fatalf("%s: %v", q, err)
			}
		}
	})
	return url
}

// open opens a database without the named rules. Some of the promises name owners, and some do not.
func open(t *testing.T, pool *sql.DB, without ...string) (*holdfast.DB[*sql.Tx], error) {
	t.Helper()
	db, err := holdfastsql.Open(dialect.Without(t.Context(), without...), pool)
	if err != nil {
		return nil, err
	}
	return access.WithOwners(db, core.AnyOwner), nil
}

func mustOpen(t *testing.T, pool *sql.DB, without ...string) *holdfast.DB[*sql.Tx] {
	t.Helper()
	db, err := open(t, pool, without...)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func must(t *testing.T, pool *sql.DB, queries ...string) {
	t.Helper()
	for _, q := range queries {
		if _, err := pool.ExecContext(t.Context(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
}

func count(t *testing.T, pool *sql.DB, query string) (n int) {
	t.Helper()
	if err := pool.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// wantRefused fails unless err names the check, the setting, the broken promise and the remedy.
func wantRefused(t *testing.T, err error, check string) {
	t.Helper()
	var e *holdfast.UnsupportedError
	if !errors.Is(err, holdfast.ErrUnsupported) || !errors.As(err, &e) {
		t.Fatalf("want it refused by %q, got %v", check, err)
	}
	if !strings.Contains(err.Error(), "holdfast: ") || e.Check != check || e.What == "" || e.Problem == "" || e.Remedy == "" || e.Engine == "" {
		t.Errorf("want it refused by %q with all that is to be said, got %+v", check, e)
	}
}

// later returns a pool whose first n connections use one URL and whose others use another one,
// as when a server setting changes for sessions that are opened afterwards.
func later(t *testing.T, n int, first, then string) *sql.DB {
	t.Helper()
	c := &changing{left: int64(n), first: connector(t, first), then: connector(t, then)}
	pool := sql.OpenDB(c)
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}

type changing struct {
	made, left  int64
	first, then driver.Connector
}

func (c *changing) Connect(ctx context.Context) (driver.Conn, error) {
	if atomic.AddInt64(&c.made, 1) <= c.left {
		return c.first.Connect(ctx)
	}
	return c.then.Connect(ctx)
}

func (c *changing) Driver() driver.Driver { return c.first.Driver() }

func connector(t *testing.T, url string) driver.Connector {
	t.Helper()
	_, dsn, err := dbtest.DriverDSN(url)
	if err != nil {
		t.Fatal(err)
	}
	d := dbtest.OpenSQL(t, url).Driver()
	if dc, ok := d.(driver.DriverContext); ok {
		c, err := dc.OpenConnector(dsn)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	return plain{d, dsn}
}

type plain struct {
	d   driver.Driver
	dsn string
}

func (p plain) Connect(context.Context) (driver.Conn, error) { return p.d.Open(p.dsn) }
func (p plain) Driver() driver.Driver                        { return p.d }
