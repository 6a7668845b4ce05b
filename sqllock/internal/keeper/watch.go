package keeper

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Watch calls read again and again until it returns false: see [core.Watch]. It ends with the keeper,
// too.
func (k *Keeper) Watch(ctx context.Context, read func(ctx context.Context) (goes bool, err error)) error {
	ctx, end := context.WithCancelCause(ctx)
	defer context.AfterFunc(k.Ctx, func() { end(ErrClosed) })()
	defer end(nil)
	return core.Watch(ctx, core.WatchEvery, k.Statements.Dialect.Passes, nil, func() (bool, error) { return read(ctx) })
}
