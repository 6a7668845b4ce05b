package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastpgx"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/dsn"
	"github.com/holdfast-go/holdfast/migrations"
)

// database is the service's view of a handle: pgx on PostgreSQL, database/sql on MySQL and SQLite.
type database[Tx any] struct {
	*holdfast.DB[Tx]
	exec func(ctx context.Context, tx Tx, query string, args ...any) (rows int64, err error)
}

// errNoRow means that a row is not there, or not yet as the statement wants it.
var errNoRow = errors.New("no such row")

// one runs a statement that has to write one row.
func (d *database[Tx]) one(ctx context.Context, tx Tx, query string, args ...any) error {
	rows, err := d.exec(ctx, tx, query, args...)
	if err == nil && rows != 1 {
		err = errNoRow
	}
	return err
}

// The service's own table. {key} compares byte for byte.
const table = `CREATE TABLE IF NOT EXISTS payments (
	order_no  {key} NOT NULL,
	kind      {key} NOT NULL,
	state     {key} NOT NULL,
	reference {key} NOT NULL,
	reversed  INTEGER NOT NULL,
	PRIMARY KEY (order_no, kind)
)`

// openService opens the service on the handle of the database.
func openService(ctx context.Context, url string, c config) (service, error) {
	reads, engine, err := dsn.Open(withPragmas(url))
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, reads, engine); err != nil {
		return nil, err
	}
	count := newCounter()
	options := holdfast.Options{Tracers: []holdfast.Tracer{count}}
	if engine != dsn.Postgres {
		db, err := holdfastsql.Open(ctx, reads, options)
		if err != nil {
			return nil, err
		}
		return newService(ctx, &database[*sql.Tx]{db, func(ctx context.Context, tx *sql.Tx, query string, args ...any) (int64, error) {
			r, err := tx.ExecContext(ctx, query, args...)
			if err != nil {
				return 0, err
			}
			return r.RowsAffected()
		}}, reads, count, c, func() {})
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, err
	}
	db, err := holdfastpgx.Open(ctx, pool, options)
	if err != nil {
		return nil, err
	}
	return newService(ctx, &database[pgx.Tx]{db, func(ctx context.Context, tx pgx.Tx, query string, args ...any) (int64, error) {
		r, err := tx.Exec(ctx, numbered(query), args...)
		return r.RowsAffected(), err
	}}, reads, count, c, pool.Close)
}

// withPragmas makes processes that share a SQLite file wait for each other.
func withPragmas(url string) string {
	if strings.HasPrefix(url, "sqlite://") && !strings.Contains(url, "?") {
		return url + "?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_txlock=immediate"
	}
	return url
}

// numbered turns ? into PostgreSQL's $1, $2, ...
func numbered(query string) string {
	parts := strings.Split(query, "?")
	var b strings.Builder
	for i, part := range parts {
		if b.WriteString(part); i < len(parts)-1 {
			b.WriteString("$" + strconv.Itoa(i+1))
		}
	}
	return b.String()
}

func migrate(ctx context.Context, pool *sql.DB, engine dsn.Engine) (err error) {
	if err := migrations.Up(ctx, pool); err != nil {
		return fmt.Errorf("migrate Holdfast's tables: %w", err)
	}
	key := "TEXT"
	if engine == dsn.MySQL {
		key = "VARBINARY(255)" // a text column of MySQL folds case
	}
	for range 3 { // PostgreSQL fails one of two that run at the same moment
		if _, err = pool.ExecContext(ctx, strings.ReplaceAll(table, "{key}", key)); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("create the example's table: %w", err)
}
