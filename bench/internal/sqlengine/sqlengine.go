// Package sqlengine opens the measured SQL databases. Each run has separate tables, and each
// driver form has a pool.
package sqlengine

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/bench/internal/wire"
	"github.com/holdfast-go/holdfast/migrations"
)

// Names of the engines.
const (
	Postgres = "postgres"
	MySQL    = "mysql"
	MariaDB  = "mariadb"
	SQLite   = "sqlite"
)

// cleanup bounds the work at the end of a run, interrupted or not.
const cleanup = time.Minute

// Engine is one database with its pools. All competitors on it use the same pools.
type Engine struct {
	Name    string
	Version string
	// URL is the server's URL with the database of the run; only for PostgreSQL.
	URL string
	// Conns is the maximum number of connections of a pool.
	Conns int
	// Pgx is the native pool; only for PostgreSQL.
	Pgx *pgxpool.Pool
	// SQL is the pool of database/sql in the driver's best form: on MySQL and MariaDB with
	// interpolateParams.
	SQL *sql.DB
	// Default is the pool of go-sql-driver without that option; nil on other engines.
	Default *sql.DB
	// Connected is SQL with Holdfast's connector.
	Connected *sql.DB
	// Wire counts the round trips of all pools; nil on SQLite, which has none.
	Wire *wire.Counter
	// Own names the run's database, schema or folder, with which Attach finds it.
	Own string

	attached bool // the database belongs to another process

	commits   sync.Once
	commitErr error
	closers   []func(ctx context.Context) error
}

// Open opens an engine with a new database (on PostgreSQL a schema) and at most conns
// connections for each pool. An error that wraps ErrMissing says how to provide a server.
func Open(ctx context.Context, name string, conns int) (*Engine, error) {
	e := &Engine{Name: name, Conns: conns}
	if err := e.open(ctx, conns); err != nil {
		return nil, errors.Join(err, e.Close(ctx))
	}
	return e, nil
}

// Attach opens the database of another process's Engine. Close leaves it there.
func Attach(ctx context.Context, name, own string, conns int) (*Engine, error) {
	e := &Engine{Name: name, Conns: conns, Own: own, attached: true}
	if err := e.open(ctx, conns); err != nil {
		return nil, errors.Join(err, e.Close(ctx))
	}
	return e, nil
}

// ErrMissing means that no server of that engine is configured.
var ErrMissing = errors.New("no server")

// Variable returns the environment variable that names an engine's server.
func Variable(engine string) string { return "HOLDFAST_TEST_" + strings.ToUpper(engine) + "_DSN" }

func (e *Engine) open(ctx context.Context, conns int) error {
	server := os.Getenv(Variable(e.Name))
	if e.Name != SQLite && server == "" {
		return fmt.Errorf("%s: %w: %s is not set; make bench sets it", e.Name, ErrMissing, Variable(e.Name))
	}
	if !e.attached {
		e.Own = "hf_bench_" + strings.ToLower(rand.Text()[:12])
	}
	var err error
	switch e.Name {
	case Postgres:
		err = e.openPostgres(ctx, server, e.Own, conns)
	case MySQL, MariaDB:
		err = e.openMySQL(ctx, server, e.Own, conns)
	case SQLite:
		err = e.openSQLite()
	default:
		return fmt.Errorf("no engine %q", e.Name)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", e.Name, err)
	}
	if err := e.SQL.QueryRowContext(ctx, e.versionQuery()).Scan(&e.Version); err != nil {
		return fmt.Errorf("%s: version: %w", e.Name, err)
	}
	if e.attached {
		return nil
	}
	if err := migrations.Up(ctx, e.SQL); err != nil {
		return fmt.Errorf("%s: tables: %w", e.Name, err)
	}
	if dir := os.Getenv("HOLDFAST_TEST_RAN_DIR"); dir != "" { // testservers reads which servers were used
		return os.WriteFile(filepath.Join(dir, e.Name), []byte(e.Version), 0o600) //nolint:gosec // the folder is the one that we were told
	}
	return nil
}

func (e *Engine) versionQuery() string {
	switch e.Name {
	case Postgres:
		return `SHOW server_version`
	case SQLite:
		return `SELECT sqlite_version()`
	}
	return `SELECT VERSION()`
}

// connect opens Connected.
func (e *Engine) connect(c driver.Connector, conns int) {
	e.Connected = sql.OpenDB(c)
	e.Connected.SetMaxOpenConns(conns)
	e.Connected.SetMaxIdleConns(conns)
	e.later(func(context.Context) error { return e.Connected.Close() })
}

// Exec runs statements in order, for example to create tables.
func (e *Engine) Exec(ctx context.Context, queries ...string) error {
	for _, q := range queries {
		if _, err := e.SQL.ExecContext(ctx, q); err != nil {
			return fmt.Errorf("%s: %w: %.80s", e.Name, err, q)
		}
	}
	return nil
}

// Trips returns the number of round trips so far; 0 on SQLite.
func (e *Engine) Trips() int64 {
	if e.Wire == nil {
		return 0
	}
	return e.Wire.Trips()
}

// Ping makes one round trip.
func (e *Engine) Ping(ctx context.Context) error {
	var one int
	if e.Pgx != nil {
		return e.Pgx.QueryRow(ctx, `SELECT $1::integer`, 1).Scan(&one)
	}
	return e.SQL.QueryRowContext(ctx, `SELECT ?`, 1).Scan(&one)
}

// Commit commits one small row in one statement; it creates its table.
func (e *Engine) Commit(ctx context.Context) error {
	e.commits.Do(func() { e.commitErr = e.Exec(ctx, `CREATE TABLE bare_commits (n BIGINT NOT NULL)`) })
	if e.commitErr != nil {
		return e.commitErr
	}
	if e.Pgx != nil {
		_, err := e.Pgx.Exec(ctx, `INSERT INTO bare_commits VALUES ($1)`, 1)
		return err
	}
	_, err := e.SQL.ExecContext(ctx, `INSERT INTO bare_commits VALUES (?)`, 1)
	return err
}

// Busy returns the number of connections that are in use.
func (e *Engine) Busy() int {
	n := e.SQL.Stats().InUse
	if e.Pgx != nil {
		n += int(e.Pgx.Stat().AcquiredConns())
	}
	if e.Default != nil {
		n += e.Default.Stats().InUse
	}
	return n
}

func (e *Engine) later(f func(ctx context.Context) error) { e.closers = append(e.closers, f) }

// Close closes the pools and drops the database of the run, even if ctx has ended.
func (e *Engine) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	var errs []error
	for len(e.closers) > 0 {
		last := len(e.closers) - 1
		errs = append(errs, e.closers[last](ctx))
		e.closers = e.closers[:last]
	}
	return errors.Join(errs...)
}
