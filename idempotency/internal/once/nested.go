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
	inTx    bool
	commits core.Commits
}

// Enter refuses a key that the context already runs under, with ErrNested, because the call would
// wait for itself. store is the store, or the table, that the key belongs to. inTx: the functions under
// the key run in a transaction.
func Enter(ctx context.Context, store any, key Hash, inTx bool) (context.Context, error) {
	outer, _ := ctx.Value(core.HeldKey{}).(*held)
	for h := outer; h != nil; h = h.outer {
		if h.store == store && h.key == key {
			return nil, ErrNested
		}
	}
	return context.WithValue(ctx, core.HeldKey{}, &held{store: store, key: key, outer: outer, inTx: inTx}), nil
}

// InTx reports whether a function that runs under one of the keys has a transaction.
func (h *held) InTx() bool { return h.inTx || h.outer != nil && h.outer.InTx() }

// Under reports whether ctx is the context of a function whose key belongs to a T.
func Under[T any](ctx context.Context) bool {
	for h, _ := ctx.Value(core.HeldKey{}).(*held); h != nil; h = h.outer {
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
	for h, _ := ctx.Value(core.HeldKey{}).(*held); h != nil; h = h.outer {
		h.commits.Add(f)
	}
}

// Committed runs what OnCommit has kept for the key that ctx was entered for last.
func Committed(ctx context.Context) {
	if h, _ := ctx.Value(core.HeldKey{}).(*held); h != nil {
		h.commits.Done()
	}
}
