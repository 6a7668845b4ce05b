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
	"github.com/holdfast-go/holdfast/migrations"
)

// benchCleanup bounds what is done after a bench, interrupted or not.
const benchCleanup = time.Minute

// benchTables are what a bench makes and drops.
type benchTables struct {
	db    *holdfast.DB[*sql.Tx]
	pool  *sql.DB
	flags *flags
}

// rows is the table of the bare statements; it is made first and dropped last,
// so that it marks the others as a bench's.
func (b *benchTables) rows() string { return b.db.Access().Table("rows") }

func (b *benchTables) exec(ctx context.Context, query string) error {
	_, err := b.pool.ExecContext(ctx, query)
	return err
}

// there lists tables that begin as the bench's own do.
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
		query, args = `SELECT name FROM `+b.db.Access().Dialect.Ident(schema)+`.sqlite_master WHERE type = 'table' AND substr(name, 1, length(?)) = ?`, []any{b.flags.prefix, b.flags.prefix}
	default:
		query = `SELECT table_name FROM information_schema.tables WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND LEFT(table_name, CHAR_LENGTH(?)) = ?`
		args = append(args, b.flags.prefix)
	}
	rows, err := b.pool.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, errors.Join(rows.Err(), rows.Close())
}

// inTheWay says why no bench may begin.
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
	case holdfast.MySQL, holdfast.MariaDB:
		engine = " ENGINE=InnoDB"
	}
	// Not IF NOT EXISTS: of two that begin at once, one is refused.
	if err := b.exec(ctx, `CREATE TABLE `+b.rows()+` (id VARCHAR(64) NOT NULL PRIMARY KEY, cents BIGINT NOT NULL)`+engine); err != nil {
		if names, e := b.there(ctx); e == nil && len(names) > 0 {
			return errors.Join(inTheWay(names), err)
		}
		return fmt.Errorf("make the bench's tables: %w", err)
	}
	if err := migrations.Up(ctx, b.pool, b.flags.options()...); err != nil {
		return errors.Join(err, b.drop(ctx))
	}
	return nil
}

// drop outlives ctx, within a bound.
func (b *benchTables) drop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), benchCleanup)
	defer cancel()
	if err := migrations.Down(ctx, b.pool, b.flags.options()...); err != nil {
		return err
	}
	return b.exec(ctx, `DROP TABLE `+b.rows())
}

// clean drops what a bench left behind, known by the table that only a bench has.
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
