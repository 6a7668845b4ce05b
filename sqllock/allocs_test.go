package sqllock_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastpgx"
	"github.com/holdfast-go/holdfast/internal/dsn"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/race"
	"github.com/holdfast-go/holdfast/sqllock"
)

// TestAllocations counts the objects that an uncontended acquire and release allocate, those of the
// driver included. Through database/sql, most are the driver's and its own.
func TestAllocations(t *testing.T) { //nolint:paralleltest // it counts allocations
	if race.Enabled {
		return // the race detector allocates, too
	}
	most := map[dbtest.Engine]float64{
		dbtest.Postgres: 86, dbtest.MySQL: 60, dbtest.MariaDB: 60, dbtest.SQLite: 104,
		dbtest.Vitess: 88,  // nothing stays prepared
		dbtest.TiDB:   134, // and each write is a transaction of three statements
	}
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine)+" sql", func(t *testing.T) { //nolint:paralleltest // see above
			countAllocations(conformance.New(t, conformance.SQL(), engine), most[engine])
		})
		if engine == dbtest.Postgres {
			t.Run("postgres pgx", func(t *testing.T) { //nolint:paralleltest // see above
				countAllocations(conformance.New(t, plainPgx(), engine), 40)
			})
		}
	}
}

// plainPgx is a native handle on connections that the tests do not watch.
func plainPgx() conformance.Handle[pgx.Tx] {
	h := conformance.Pgx()
	h.Open = func(tb testing.TB, url string, opts ...holdfast.Options) conformance.Pool[pgx.Tx] {
		tb.Helper()
		config, err := dsn.Parse(url)
		if err != nil {
			tb.Fatal(err)
		}
		pool, err := pgxpool.New(tb.Context(), config.DSN)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(pool.Close)
		db, err := holdfastpgx.Open(tb.Context(), pool, conformance.Single(opts))
		if err != nil {
			tb.Fatal(err)
		}
		return conformance.Pool[pgx.Tx]{DB: db, Close: pool.Close}
	}
	return h
}

func countAllocations[Tx any](e *conformance.Env[Tx], most float64) {
	e.ManyOwners()
	l, err := sqllock.New(e.Ctx, e.DB, sqllock.Options{TTL: time.Hour})
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = l.Close(context.Background()) })
	l.LooksLater()
	of := l.For("merchant")
	pair := func() {
		lease, err := of.Acquire(e.Ctx, "key")
		if err == nil {
			err = lease.Release(e.Ctx)
		}
		if err != nil {
			e.Fatal(err)
		}
	}
	for range 10 { // until the statements are prepared
		pair()
	}
	if n := testing.AllocsPerRun(200, pair); n > most {
		e.Errorf("%v objects, at most %v", n, most)
	}
}
