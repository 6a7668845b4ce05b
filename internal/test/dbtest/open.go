package dbtest

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/internal/dsn"
)

// keptConns is how many idle connections a test's pool keeps.
const keptConns = 64

// OpenSQL opens a database that DSN made, with the driver for its URL. It is closed when the
// test ends, before the database is dropped. The pool keeps its connections: a new one costs a
// server more than most tests.
func OpenSQL(tb testing.TB, databaseURL string) *sql.DB {
	tb.Helper()
	db, _, err := dsn.Open(databaseURL)
	if err != nil {
		tb.Fatal(err)
	}
	db.SetMaxIdleConns(keptConns)
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Errorf("close the pool: %v", err)
		}
	})
	return db
}

// With adds a parameter to a database's URL: name=value, escaped if necessary.
func With(databaseURL, param string) string {
	if strings.Contains(databaseURL, "?") {
		return databaseURL + "&" + param
	}
	return databaseURL + "?" + param
}

// OpenPgx opens a PostgreSQL database that DSN made as a native pool. Closing it, when the test
// ends, waits for connections that the test did not return.
func OpenPgx(tb testing.TB, databaseURL string) *pgxpool.Pool {
	tb.Helper()
	config, err := dsn.Parse(databaseURL)
	if err != nil {
		tb.Fatal(err)
	}
	if config.Engine != dsn.Postgres {
		tb.Fatalf("a pgx pool on %s", config.Engine)
	}
	pool, err := pgxpool.New(tb.Context(), config.DSN)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// DriverDSN returns the name of the database/sql driver for a URL, and the DSN in that driver's
// format.
func DriverDSN(databaseURL string) (driverName, driverDSN string, err error) {
	config, err := dsn.Parse(databaseURL)
	return config.Driver, config.DSN, err //nolint:wrapcheck // it says all there is to say
}
