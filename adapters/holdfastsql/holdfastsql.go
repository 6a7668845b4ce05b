// Package holdfastsql opens Holdfast on a *sql.DB of the standard library.
// Functions receive the native *sql.Tx, which GORM, ent, bun and sqlc take too.
package holdfastsql

import (
	"context"
	"database/sql"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/stdhandle"
)

// Open opens Holdfast on pool, which stays the caller's: it is not closed and
// no session setting of its connections is left changed. The engine is asked
// for with one query, and its settings with another.
//
// On SQLite Holdfast sets the connection's commit hook while it has a
// transaction open; a hook of the program's own is replaced by it.
//
// Drivers that are tested: jackc/pgx (stdlib), go-sql-driver/mysql,
// modernc.org/sqlite.
func Open(ctx context.Context, pool *sql.DB, opts ...holdfast.Option) (*holdfast.DB[*sql.Tx], error) {
	if pool == nil {
		return nil, &holdfast.InputError{Field: "pool", Problem: "it is nil"}
	}
	return holdfast.New(ctx, stdhandle.Handle[*sql.Tx]{
		Querier: stdhandle.Querier{R: pool},
		Pin: func(ctx context.Context) (*sql.Conn, stdhandle.Begin[*sql.Tx], error) {
			c, err := pool.Conn(ctx)
			if err != nil {
				return nil, nil, err
			}
			return c, c.BeginTx, nil
		},
		Std: func(tx *sql.Tx) *sql.Tx { return tx },
	}, opts...)
}
