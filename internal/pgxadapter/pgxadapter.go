// Package pgxadapter lets holdfasttest put faults before the adapter of holdfastpgx, which the API does not show.
package pgxadapter

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Of returns what holdfastpgx.Open opens a pool on. Package holdfastpgx sets it.
var Of func(pool *pgxpool.Pool) core.Adapter[pgx.Tx]
