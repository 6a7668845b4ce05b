// Package holdfastsqlx opens Holdfast on a *sqlx.DB of github.com/jmoiron/sqlx.
// Functions receive the native *sqlx.Tx.
package holdfastsqlx

import (
	"context"
	"database/sql"

	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/stdhandle"
)

// Open opens Holdfast on pool. The pool stays the caller's: Holdfast does not close it, and
// changes no session setting of its connections permanently. Open checks the server, its settings
// and Holdfast's tables, and refuses the environments that docs/reference/environments.md lists
// ([holdfast.ErrUnsupported]). Each later connection of the pool is checked once, in one round
// trip.
func Open(ctx context.Context, pool *sqlx.DB, opts ...holdfast.Options) (*holdfast.DB[*sqlx.Tx], error) {
	if pool == nil || pool.DB == nil {
		return nil, &holdfast.InputError{Field: "pool", Problem: "it is nil"}
	}
	return access.Open(ctx, new(holdfast.DB[*sqlx.Tx]), stdhandle.Handle[*sqlx.Tx]{
		Querier: stdhandle.Querier{R: pool.DB, Prepared: stdhandle.NewPrepared(pool.DB)},
		Pin: func(ctx context.Context) (*sql.Conn, stdhandle.Begin[*sqlx.Tx], error) {
			c, err := pool.Connx(ctx)
			if err != nil {
				return nil, nil, err
			}
			return c.Conn, c.BeginTxx, nil
		},
		Std: func(tx *sqlx.Tx) *sql.Tx {
			if tx == nil {
				return nil
			}
			return tx.Tx
		},
	}, opts)
}
