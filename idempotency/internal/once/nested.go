package once

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/core"
)

// held is the chain of keys that a context's functions run under.
type held struct {
	store   any
	key     Hash
	outer   *held
	commits core.Commits
}

type heldKey struct{}

// Enter refuses a key that the context already runs under, with ErrNested, because the call would
// wait for itself. store is the store, or the table, that the key belongs to.
func Enter(ctx context.Context, store any, key Hash) (context.Context, error) {
	outer, _ := ctx.Value(heldKey{}).(*held)
	for h := outer; h != nil; h = h.outer {
		if h.store == store && h.key == key {
			return nil, ErrNested
		}
	}
	return context.WithValue(ctx, heldKey{}, &held{store: store, key: key, outer: outer}), nil
}

// Under reports whether ctx is the context of a function whose key belongs to a T.
func Under[T any](ctx context.Context) bool {
	for h, _ := ctx.Value(heldKey{}).(*held); h != nil; h = h.outer {
		if _, is := h.store.(T); is {
			return true
		}
	}
	return false
}

// OnCommit runs f after the commit of each transaction that ctx may belong to. Some of them may have
// been rolled back and run again, so f must not rely on a commit.
func OnCommit(ctx context.Context, f func()) {
	core.OnCommit(ctx, f)
	for h, _ := ctx.Value(heldKey{}).(*held); h != nil; h = h.outer {
		h.commits.Add(f)
	}
}

// Committed runs what OnCommit has kept for the key that ctx was entered for last.
func Committed(ctx context.Context) {
	if h, _ := ctx.Value(heldKey{}).(*held); h != nil {
		h.commits.Done()
	}
}
