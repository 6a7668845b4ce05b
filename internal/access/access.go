// Package access is what Holdfast's packages reach through a holdfast.DB.
package access

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// Access is one DB from the inside.
type Access[Tx any] struct {
	Dialect *dialect.Dialect
	// Trace tells of calls.
	Trace *trace.Tracer
	// Table quotes the name of one of Holdfast's own tables.
	Table func(name string) string
	// Pool runs single statements, each committing by itself.
	Pool core.Querier
	// OnConn runs f on a connection of the pool, and again on another one where
	// that was dead: f reads, or does nothing more when it is run again. before,
	// if given, is a setting for f's statement alone, and comes first.
	OnConn func(ctx context.Context, before string, f func(q core.Querier) error) error
	// Acquire pins a connection.
	Acquire func(ctx context.Context) (core.Conn[Tx], error)
	// Join runs statements in a caller's transaction.
	Join func(tx Tx) (core.Querier, error)
	// Listen waits for the engine's notifications: see core.Listener.
	Listen func(ctx context.Context, statement string, ready func(), each func(payload string)) error
	// Alive finds a caller's transaction that has ended already, where the
	// engine would commit each further statement by itself.
	Alive func(ctx context.Context, q core.Querier) error
	// Rollback ends a caller's transaction.
	Rollback func(ctx context.Context, tx Tx) error
	// Attempt runs one transaction, once: an error of f rolls it back.
	Attempt func(ctx context.Context, opts core.TxOptions, f func(ctx context.Context, tx Tx, q core.Querier) error) error
}
