package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/dsn"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/sqllock"
)

// The service's own tables. {key} is a column that compares byte for byte: a text column of MySQL
// folds case, so on MySQL it is VARBINARY.
var tables = []string{
	// settlement_no is the unique key that the feed claims. The second UNIQUE forbids nothing: it
	// is the index with which workers find new lines, in a form that every engine accepts.
	`CREATE TABLE IF NOT EXISTS settlements (
		settlement_no {key}  NOT NULL PRIMARY KEY,
		day           {key}  NOT NULL,
		merchant      {key}  NOT NULL,
		amount        BIGINT NOT NULL,
		state         {key}  NOT NULL,
		UNIQUE (day, state, settlement_no)
	)`,
	// Double entry. No constraint forbids booking a line twice, so that the audit would find it.
	`CREATE TABLE IF NOT EXISTS entries (
		settlement_no {key}  NOT NULL,
		account       {key}  NOT NULL,
		amount        BIGINT NOT NULL
	)`,
	`CREATE TABLE IF NOT EXISTS balances (
		account {key}  NOT NULL PRIMARY KEY,
		amount  BIGINT NOT NULL
	)`,
	`CREATE TABLE IF NOT EXISTS days (
		day    {key}  NOT NULL PRIMARY KEY,
		state  {key}  NOT NULL,
		line_count BIGINT NOT NULL
	)`,
	// No constraint forbids closing a day twice either.
	`CREATE TABLE IF NOT EXISTS closings (
		day   {key}  NOT NULL,
		token BIGINT NOT NULL,
		line_count BIGINT NOT NULL,
		total BIGINT NOT NULL
	)`,
}

// database is the database that all processes of the day use.
type database struct {
	pool   *sql.DB
	db     *holdfast.DB[*sql.Tx]
	locks  *sqllock.Locker[*sql.Tx]
	rebind func(query string) string
}

const (
	serverConnections = 4
	// leaseTTL is how long the day waits after its leader was killed.
	leaseTTL = 2 * time.Second
)

// open opens the database of a URL. A real program has its own pool already, and Holdfast works on
// that one.
func open(ctx context.Context, url string) (_ *database, err error) {
	config, err := dsn.Parse(url)
	if err != nil {
		return nil, usageError{fmt.Errorf("-dsn: %w", err)}
	}
	pool, err := sql.Open(config.Driver, config.DSN)
	if err != nil {
		return nil, fmt.Errorf("open the pool: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, pool.Close())
		}
	}()
	pool.SetMaxOpenConns(serverConnections)
	pool.SetMaxIdleConns(serverConnections)
	if err := migrate(ctx, pool, config.Engine); err != nil {
		return nil, err
	}
	d := &database{pool: pool, rebind: func(query string) string { return query }}
	if config.Engine == dsn.MySQL {
		d.rebind = func(query string) string { return placeholder.ReplaceAllString(query, "?") }
	}
	if d.db, err = holdfastsql.Open(ctx, pool, holdfast.Options{SingleOwner: true}); err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	if d.locks, err = sqllock.New(ctx, d.db, sqllock.Options{TTL: leaseTTL}); err != nil {
		return nil, fmt.Errorf("open the locks: %w", err)
	}
	return d, nil
}

func (d *database) close(ctx context.Context) error {
	return errors.Join(d.locks.Close(context.WithoutCancel(ctx)), d.pool.Close())
}

// migrate creates missing tables, Holdfast's first.
func migrate(ctx context.Context, pool *sql.DB, engine dsn.Engine) error {
	if err := migrations.Up(ctx, pool); err != nil {
		return fmt.Errorf("migrate Holdfast's tables: %w", err)
	}
	key := "TEXT"
	if engine == dsn.MySQL {
		key = "VARBINARY(64)"
	}
	for _, table := range tables {
		// PostgreSQL fails one of two CREATE TABLE IF NOT EXISTS that run at the same moment. A
		// real service has a migration tool.
		var err error
		for range 5 {
			if _, err = pool.ExecContext(ctx, strings.ReplaceAll(table, "{key}", key)); err == nil {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		if err != nil {
			return fmt.Errorf("create the example's tables: %w", err)
		}
	}
	return nil
}
