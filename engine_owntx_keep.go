package holdfast

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// keep applies the fence's setting and leaves it on the connection for Holdfast's next transaction. It returns
// false if this connection cannot keep settings.
func (s *ownTx[Tx]) keep(ctx context.Context, opts core.TxOptions) (bool, error) {
	fence := &s.d.dialect.Fence
	k, can := s.conn.(core.Keeper)
	if !can || fence.Kept.Before == nil {
		return false, nil
	}
	kept := core.Kept{Setting: fence.Kept.Before(opts.LockTimeout), Implicit: fence.Implicit, Lost: s.d.lost, Survives: fence.Survives, Ends: fence.Ends}
	return k.Keep(ctx, kept, func(q core.Querier) (string, error) {
		undo, err := fence.Kept.Change(ctx, explained{q, s.d}, opts.LockTimeout)
		return undo.Text, err
	})
}

func (d *DB[Tx]) lost(err error) error {
	if d.dialect.Classify(err) == dialect.Retry {
		return &TxLostError{Err: err}
	}
	return nil
}
