// Package holdfastsql opens Holdfast on a *sql.DB of the standard library. Functions receive the
// native *sql.Tx, which GORM, ent, bun and sqlc also accept.
package holdfastsql

import (
	"context"
	"database/sql"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/stdhandle"
)

// Open opens Holdfast on pool. The pool stays the caller's: Holdfast does not close it, and
// changes no session setting of its connections permanently. Open checks the server, its settings
// and Holdfast's tables, and refuses the environments that docs/reference/environments.md lists
// ([holdfast.ErrUnsupported]). Each later connection of the pool is checked once, in one round
// trip.
//
// On SQLite Holdfast sets the connection's commit hook while it has a transaction open. This
// replaces a hook of the program.
//
// Tested drivers: jackc/pgx (stdlib), go-sql-driver/mysql, modernc.org/sqlite.
func Open(ctx context.Context, pool *sql.DB, opts ...holdfast.Options) (*holdfast.DB[*sql.Tx], error) {
	if pool == nil {
		return nil, &holdfast.InputError{Field: "pool", Problem: "it is nil"}
	}
	return access.Open(ctx, new(holdfast.DB[*sql.Tx]), stdhandle.Handle[*sql.Tx]{
		Querier: stdhandle.Querier{R: pool, Prepared: stdhandle.NewPrepared(pool)},
		Pin: func(ctx context.Context) (*sql.Conn, stdhandle.Begin[*sql.Tx], error) {
			c, err := pool.Conn(ctx)
			if err != nil {
				return nil, nil, err
			}
			return c, c.BeginTx, nil
		},
		Std: func(tx *sql.Tx) *sql.Tx { return tx },
	}, opts)
}
