package sqllock

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
)

// Locker grants the locks of one DB. It is safe for concurrent use. One Locker
// a process is best: it brings together the goroutines that want one key, and
// renews all leases together. Close it at the end.
type Locker[Tx any] struct {
	db     *holdfast.DB[Tx]
	access access.Access[Tx]
	leases *manager
}

// New opens a Locker and checks that its tables are there.
//
// Errors: [holdfast.ErrInvalid], [holdfast.ErrSchema] with the command to run,
// the driver's.
func New[Tx any](ctx context.Context, db *holdfast.DB[Tx], o Options) (*Locker[Tx], error) {
	if db == nil {
		return nil, invalid("db", "is nil")
	}
	if err := o.withDefaults(); err != nil {
		return nil, err
	}
	if err := db.CheckSchema(ctx); err != nil {
		return nil, err
	}
	a := db.Access()
	s := newStore(a.Dialect, a.Table, a.OnConn, o.Holder)
	s.inTx = func(ctx context.Context, o core.TxOptions, f func(ctx context.Context, q core.Querier) error) error {
		return s.missing(a.Attempt(ctx, o, func(ctx context.Context, _ Tx, q core.Querier) error { return f(ctx, q) }))
	}
	if err := s.identify(ctx); err != nil {
		var missing *holdfast.SchemaError
		if errors.As(err, &missing) {
			missing.Table = a.Table("floor")
			return nil, missing
		}
		return nil, fmt.Errorf("sqllock: reading the store's identity: %w", err)
	}
	return &Locker[Tx]{db: db, access: a, leases: newManager(s, o, a.Trace, a.Listen)}, nil
}
