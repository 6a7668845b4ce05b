// Package access is what Holdfast's packages reach through a holdfast.DB.
package access

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// Access is one DB from the inside.
type Access[Tx any] struct {
	Dialect *dialect.Dialect
	// Table quotes the name of one of Holdfast's own tables.
	Table func(name string) string
	// Pool runs single statements, each committing by itself.
	Pool core.Querier
	// Read runs f, which only reads, on a connection of the pool, and passes
	// over those that are dead.
	Read func(ctx context.Context, f func(q core.Querier) error) error
	// Acquire pins a connection.
	Acquire func(ctx context.Context) (core.Conn[Tx], error)
	// Join runs statements in a caller's transaction.
	Join func(tx Tx) (core.Querier, error)
	// Rollback ends a caller's transaction.
	Rollback func(ctx context.Context, tx Tx) error
	// Attempt runs one transaction, once: an error of f rolls it back.
	Attempt func(ctx context.Context, opts core.TxOptions, f func(ctx context.Context, tx Tx, q core.Querier) error) error
}
