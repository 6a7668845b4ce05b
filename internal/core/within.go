package core

import (
	"context"
	"sync"
	"sync/atomic"
)

type withinKey struct{}

// within is the transaction of a function.
type within struct {
	open    atomic.Bool
	commits Commits
}

// Within returns the context of a function that runs inside a transaction of Holdfast. end
// removes the mark when the transaction is over. If it has committed, end runs what OnCommit has
// kept.
func Within(ctx context.Context) (inside context.Context, end func(committed bool)) {
	w := &within{}
	w.open.Store(true)
	return context.WithValue(ctx, withinKey{}, w), func(committed bool) {
		w.open.Store(false)
		if committed {
			w.commits.Done()
		}
	}
}

// IsWithin reports whether ctx belongs to a function whose transaction is open.
func IsWithin(ctx context.Context) bool {
	w, _ := ctx.Value(withinKey{}).(*within)
	return w != nil && w.open.Load()
}

// HeldKey is the context key of the keys that functions run under: see Inside.
type HeldKey struct{}

// Inside reports whether ctx belongs to a function that has a transaction.
func Inside(ctx context.Context) bool {
	held, _ := ctx.Value(HeldKey{}).(interface{ InTx() bool })
	return IsWithin(ctx) || held != nil && held.InTx()
}

// OnCommit runs f after the commit of the transaction of Within that ctx belongs to.
func OnCommit(ctx context.Context, f func()) {
	if w, _ := ctx.Value(withinKey{}).(*within); w != nil {
		w.commits.Add(f)
	}
}

// Commits is what is to be done after a commit. The zero value is empty.
type Commits struct {
	mu   sync.Mutex
	list []func()
}

// Add adds f.
func (c *Commits) Add(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, f)
}

// Done runs the list.
func (c *Commits) Done() {
	c.mu.Lock()
	list := c.list
	c.list = nil
	c.mu.Unlock()
	for _, f := range list {
		f()
	}
}
