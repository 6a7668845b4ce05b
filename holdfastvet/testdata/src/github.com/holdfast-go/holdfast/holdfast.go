package holdfast

import "context"

type DB[Tx any] struct{}

func (*DB[Tx]) InTx(context.Context, func(ctx context.Context, tx Tx) error) error { return nil }
