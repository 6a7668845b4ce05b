package staged

import "context"

type OnLeaseEnd int

const (
	Park OnLeaseEnd = iota
	TakeOver
)

type ExternalCall[T any] struct {
	Step       string
	OnLeaseEnd OnLeaseEnd
}

type Run[Tx any] struct{}

func Local[T, Tx any](ctx context.Context, r *Run[Tx], step string, fn func(ctx context.Context, tx Tx) (T, error)) (value T, err error) {
	return
}

func Call[T, Tx any](ctx context.Context, r *Run[Tx], step ExternalCall[T], fn func(ctx context.Context, providerKey string) (T, error)) (value T, err error) {
	return
}
