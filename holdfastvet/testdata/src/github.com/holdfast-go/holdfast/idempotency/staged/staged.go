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

func Call[T any](ctx context.Context, step ExternalCall[T], fn func(ctx context.Context, providerKey string) (T, error)) (value T, err error) {
	return
}
