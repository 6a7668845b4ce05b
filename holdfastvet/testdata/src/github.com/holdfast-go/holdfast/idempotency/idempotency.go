package idempotency

import "context"

type Store[Tx any] struct{}

type Op struct{ Owner, Name, Key string }

type Result[T any] struct{ Value T }

func KeyOf(parts ...string) string { return "" }

func Do[T, Tx any](ctx context.Context, s *Store[Tx], op Op, fn func(ctx context.Context, tx Tx) (T, error)) (res Result[T], err error) {
	return
}
