package once

import "context"

// held is the chain of keys that a context's functions run under.
type held struct {
	store any
	key   Hash
	outer *held
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
	return context.WithValue(ctx, heldKey{}, &held{store, key, outer}), nil
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
