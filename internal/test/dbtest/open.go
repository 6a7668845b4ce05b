package dbtest

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/internal/dsn"
)

// maxConns is how many connections a test's pool makes. A busy server makes only so many in time.
const maxConns = 16

// OpenSQL opens a database that DSN made, with the driver for its URL. It is closed when the
// test ends, before the database is dropped. The pool has maxConns connections, and keeps them: a
// new one costs a server more than most tests.
func OpenSQL(tb testing.TB, databaseURL string) *sql.DB {
	tb.Helper()
	db, err := OpenURL(databaseURL)
	if err != nil {
		tb.Fatal(err)
	}
	return ofTest(tb, db)
}

// OpenConnector opens a database as OpenSQL does, with its connector wrapped.
func OpenConnector(tb testing.TB, databaseURL string, wrap func(driver.Connector) driver.Connector) *sql.DB {
	tb.Helper()
	c, err := dsn.Connector(databaseURL, keptDial(databaseURL))
	if err != nil {
		tb.Fatal(err)
	}
	return ofTest(tb, sql.OpenDB(wrap(c)))
}

func ofTest(tb testing.TB, db *sql.DB) *sql.DB {
	tb.Helper()
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxConns)
	tb.Cleanup(func() {
		// A connection that the test cut cannot say goodbye. go-sql-driver has its own error
		// for that, which it keeps to itself.
		if err := db.Close(); err != nil && !errors.Is(err, driver.ErrBadConn) && err.Error() != "bad connection" {
			tb.Errorf("close the pool: %v", err)
		}
	})
	return db
}

// OpenURL opens a database for a caller that closes it.
func OpenURL(databaseURL string) (*sql.DB, error) {
	return dsn.OpenThrough(databaseURL, keptDial(databaseURL))
}

// With adds a parameter to a database's URL: name=value, escaped if necessary.
func With(databaseURL, param string) string {
	if strings.Contains(databaseURL, "?") {
		return databaseURL + "&" + param
	}
	return databaseURL + "?" + param
}

// OpenPgx opens a PostgreSQL database that DSN made as a native pool. Closing it, when the test
// ends, waits for connections that the test did not return: for Slack, then the test fails.
func OpenPgx(tb testing.TB, databaseURL string) *pgxpool.Pool {
	tb.Helper()
	config, err := dsn.Parse(databaseURL)
	if err != nil {
		tb.Fatal(err)
	}
	if config.Engine != dsn.Postgres {
		tb.Fatalf("a pgx pool on %s", config.Engine)
	}
	pgx, err := pgxpool.ParseConfig(config.DSN)
	if err != nil {
		tb.Fatal(err)
	}
	if !strings.Contains(databaseURL, "pool_max_conns=") {
		pgx.MaxConns = maxConns // pgx's four are fewer than one test's transactions
	}
	if dial := keptDial(databaseURL); dial != nil {
		pgx.ConnConfig.DialFunc = dial
	}
	pool, err := pgxpool.NewWithConfig(tb.Context(), pgx)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			pool.Close()
		}()
		select {
		case <-closed:
		case <-time.After(Slack):
			tb.Errorf("close the pool: %d connections are not returned", pool.Stat().AcquiredConns())
		}
	})
	return pool
}

// DriverDSN returns the name of the database/sql driver for a URL, and the DSN in that driver's
// format.
func DriverDSN(databaseURL string) (driverName, driverDSN string, err error) {
	config, err := dsn.Parse(databaseURL)
	return config.Driver, config.DSN, err
}
