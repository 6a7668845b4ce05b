package holdfast

import (
	"context"
	"fmt"

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
	kept := core.Kept{
		Setting: fence.Kept.Before(opts.LockTimeout), Implicit: fence.Implicit,
		Lost: s.d.lost, Survives: fence.Survives, Ends: fence.Ends, Again: s.d.again,
	}
	if s.marks {
		kept.Mark = fence.Mark
	}
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

// spared reports whether the mark is set only when it is needed: the connection sees that.
func (s *ownTx[Tx]) spared() bool {
	intact, _ := s.intact()
	return intact && !s.d.unsure.Load()
}

// again is the error of a transaction that has no mark, after an error that it may not have survived. From
// now on each transaction has one from its start: this program's functions swallow such errors.
func (d *DB[Tx]) again(err error) error {
	d.unsure.Store(true)
	return &RetryError{Attempts: 1, Err: fmt.Errorf("holdfast: only the server knows whether the transaction has survived this error: %v", err)} //nolint:errorlint // it is not this transaction's outcome
}
