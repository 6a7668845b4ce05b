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
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/migrations"
)

// benchCleanup bounds the cleanup after a bench, interrupted or not.
const benchCleanup = time.Minute

// benchTables are the tables that a bench creates and drops.
type benchTables struct {
	db    *holdfast.DB[*sql.Tx]
	pool  *sql.DB
	flags *flags
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
