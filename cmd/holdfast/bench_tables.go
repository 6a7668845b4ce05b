package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastpgx"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dsn"
	"github.com/holdfast-go/holdfast/internal/refund"
	"github.com/holdfast-go/holdfast/migrations"
)

// benchCleanup bounds the cleanup after a bench, interrupted or not.
const benchCleanup = time.Minute

// benchTables are the tables that a bench creates and drops.
type benchTables struct {
	db    *holdfast.DB[*sql.Tx]
	pool  *sql.DB
	flags *flags
	texts refund.Texts
	// connected is db on a pool with Holdfast's connector.
	connected *holdfast.DB[*sql.Tx]
	close     func()
	notes     []string // about the URL
}

func openBench(ctx context.Context, f *flags, pool *sql.DB, clients int) (*benchTables, error) {
	opts := f.options()
	opts.SingleOwner = true
	db, err := holdfastsql.Open(ctx, pool, opts)
	if err != nil {
		return nil, err
	}
	url, err := f.existing()
	if err != nil {
		return nil, err
	}
	connector, err := dsn.Connector(url, nil)
	if err != nil {
		return nil, err
	}
	if db.Engine() == holdfast.PostgreSQL {
		connector = holdfastpgx.Connector(connector)
	} else {
		connector = holdfastsql.Connector(connector)
	}
	wrapped := sql.OpenDB(connector)
	for _, p := range []*sql.DB{pool, wrapped} {
		p.SetMaxIdleConns(clients + 2)
		if db.Engine() == holdfast.SQLite {
			p.SetMaxOpenConns(1) // its fastest form under contention: no connection polls for the write lock
		}
	}
	b := &benchTables{db: db, pool: pool, flags: f, close: func() { _ = wrapped.Close() }}
	if strings.HasPrefix(url, "m") && !strings.Contains(url, "interpolateParams=true") { // MySQL or MariaDB
		b.notes = append(b.notes, "without interpolateParams=true in the URL each statement with a parameter takes two round trips, the bare ones too")
	}
	b.texts = refund.TextsOf(string(db.Engine()), access.Of(db).Table)
	if b.connected, err = holdfastsql.Open(ctx, wrapped, opts); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// flush says what a commit waits for.
func (b *benchTables) flush(ctx context.Context) (said string, err error) {
	var query string
	switch b.db.Engine() {
	case holdfast.PostgreSQL:
		query = `SELECT string_agg(name || '=' || setting, ',' ORDER BY name) FROM pg_settings WHERE name IN ('fsync', 'synchronous_commit', 'wal_sync_method')`
	case holdfast.SQLite:
		query = `SELECT 'journal_mode=' || (SELECT journal_mode FROM pragma_journal_mode) || ',synchronous=' || (SELECT synchronous FROM pragma_synchronous)`
	case holdfast.MySQL, holdfast.MariaDB:
		query = `SELECT CONCAT('innodb_flush_log_at_trx_commit=', @@innodb_flush_log_at_trx_commit, ',log_bin=', @@log_bin, ',sync_binlog=', @@sync_binlog)`
	default: // several servers
		return "unknown", nil
	}
	err = b.pool.QueryRowContext(ctx, query).Scan(&said)
	return said, err
}

// rows is the table of the bare statements. It is created first and dropped last, so that it marks
// the other tables as a bench's.
func (b *benchTables) rows() string { return access.Of(b.db).Table("rows") }

func (b *benchTables) exec(ctx context.Context, query string) error {
	_, err := b.pool.ExecContext(ctx, query)
	return err
}

// there lists tables whose names begin with the bench's prefix.
func (b *benchTables) there(ctx context.Context) (names []string, err error) {
	var query string
	args := []any{b.flags.schema, b.flags.prefix}
	switch b.db.Engine() {
	case holdfast.PostgreSQL:
		query = `SELECT tablename::text FROM pg_tables WHERE schemaname = COALESCE(NULLIF($1::text, ''), current_schema()::text) AND left(tablename::text, length($2::text)) = $2::text`
	case holdfast.SQLite:
		schema := "main"
		if b.flags.schema != "" {
			schema = b.flags.schema
		}
		query, args = `SELECT name FROM `+access.Of(b.db).Dialect.Ident(schema)+`.sqlite_master WHERE type = 'table' AND substr(name, 1, length(?)) = ?`, []any{b.flags.prefix, b.flags.prefix}
	default:
		query = `SELECT table_name FROM information_schema.tables WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND LEFT(table_name, CHAR_LENGTH(?)) = ?`
		args = append(args, b.flags.prefix)
	}
	rows, err := b.pool.QueryContext(ctx, query, args...) //nolint:rowserrcheck // Collect does
	if err != nil {
		return nil, err
	}
	return core.Collect(rows, core.Value[string])
}

// inTheWay returns the error for tables that prevent a bench.
func inTheWay(names []string) error {
	return fmt.Errorf("tables named %s are there: another bench runs, or one was killed (then: holdfast bench --clean), or they are a program's (then: another --prefix)",
		strings.Join(names, ", "))
}

func (b *benchTables) create(ctx context.Context) error {
	names, err := b.there(ctx)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		return inTheWay(names)
	}
	engine := ""
	switch b.db.Engine() {
	case holdfast.MySQL, holdfast.MariaDB, holdfast.TiDB, holdfast.Vitess:
		engine = " ENGINE=InnoDB"
	}
	// Without IF NOT EXISTS, so that of two concurrent benches one fails.
	if err := b.exec(ctx, `CREATE TABLE `+b.rows()+` (id VARCHAR(64) NOT NULL PRIMARY KEY, cents BIGINT NOT NULL)`+engine); err != nil {
		if names, e := b.there(ctx); e == nil && len(names) > 0 {
			return errors.Join(inTheWay(names), err)
		}
		return fmt.Errorf("make the bench's tables: %w", err)
	}
	for _, statement := range append(b.texts.Tables, b.texts.Fill) {
		if err := b.exec(ctx, statement); err != nil {
			return errors.Join(fmt.Errorf("make the bench's tables: %w", err), b.drop(ctx))
		}
	}
	if err := migrations.Up(ctx, b.pool, b.flags.options()); err != nil {
		return errors.Join(err, b.drop(ctx))
	}
	return nil
}

// drop drops the tables, also after ctx has ended, within benchCleanup.
func (b *benchTables) drop(ctx context.Context) error {
	ctx, cancel := core.CleanupWithin(ctx, benchCleanup)
	defer cancel()
	if err := migrations.Down(ctx, b.pool, b.flags.options()); err != nil {
		return err
	}
	for _, table := range []string{"orders", "refunds", "ledger"} {
		if err := b.exec(ctx, `DROP TABLE IF EXISTS `+access.Of(b.db).Table(table)); err != nil {
			return err
		}
	}
	return b.exec(ctx, `DROP TABLE `+b.rows())
}

// clean drops the tables of an earlier bench. The table that only a bench has identifies them.
func (b *benchTables) clean(ctx context.Context) error {
	names, err := b.there(ctx)
	switch {
	case err != nil:
		return err
	case len(names) == 0:
		return nil
	case !slices.Contains(names, b.flags.prefix+"rows"):
		return fmt.Errorf("tables named %s are no bench's: %srows is not among them", strings.Join(names, ", "), b.flags.prefix)
	}
	return b.drop(ctx)
}
