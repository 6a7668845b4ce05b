// Package pgxadapter lets holdfasttest put faults before the adapter of holdfastpgx, which the API does not show.
package pgxadapter

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/internal/core"
)

var of func(pool *pgxpool.Pool) core.Adapter[pgx.Tx]

// Register is for package holdfastpgx.
func Register(adapter func(pool *pgxpool.Pool) core.Adapter[pgx.Tx]) struct{} {
	of = adapter
	return struct{}{}
}

// Of returns what holdfastpgx.Open opens a pool on.
func Of(pool *pgxpool.Pool) core.Adapter[pgx.Tx] { return of(pool) }
