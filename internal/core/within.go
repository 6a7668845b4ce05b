package core

import (
	"context"
	"sync/atomic"
)

type withinKey struct{}

// Within returns the context of a function that runs inside a transaction of Holdfast. end
// removes the mark when the transaction is over.
func Within(ctx context.Context) (within context.Context, end func()) {
	open := new(atomic.Bool)
	open.Store(true)
	return context.WithValue(ctx, withinKey{}, open), func() { open.Store(false) }
}

// IsWithin reports whether ctx belongs to a function whose transaction is open.
func IsWithin(ctx context.Context) bool {
	open, _ := ctx.Value(withinKey{}).(*atomic.Bool)
	return open != nil && open.Load()
}
