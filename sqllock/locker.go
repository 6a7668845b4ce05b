package sqllock

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

// Locker grants the leases of one DB. It is safe for concurrent use. Use one Locker per
// process: it queues the goroutines that want the same key, and renews all leases together.
// Close it at the end.
type Locker[Tx any] struct {
	db     *holdfast.DB[Tx]
	access access.Access[Tx]
	owner  core.Owner
	leases *leases
}

// New opens a Locker and checks that its tables exist.
//
// Errors: [holdfast.ErrInvalid]; [holdfast.ErrSchema] with the command to run; the driver's.
func New[Tx any](ctx context.Context, db *holdfast.DB[Tx], opts ...Options) (*Locker[Tx], error) {
	if db == nil {
		return nil, keeper.Invalid("db", "is nil")
	}
	given, err := options.One(opts)
	if err != nil {
		return nil, err
	}
	o, err := keeper.Options(given).WithDefaults()
	if err != nil {
		return nil, err
	}
	if err := db.CheckSchema(ctx); err != nil {
		return nil, err
	}
	a := access.Of(db)
	s, err := keeper.OpenStatements(ctx, a, o.Holder)
	if errors.Is(err, holdfast.ErrSchema) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("sqllock: reading the store's identity: %w", err)
	}
	k := keeper.New(s, o, a.Trace, a.Listen, a.Side)
	if o.ReleaseOnDisconnect {
		if err := k.Liveness.Open(ctx); err != nil {
			_ = k.Close(ctx)
			return nil, fmt.Errorf("sqllock: beginning the session of Options.ReleaseOnDisconnect: %w", err)
		}
	}
	return &Locker[Tx]{db: db, access: a, owner: a.Owners.Owner(""), leases: keeper.Of(k, func() *leases { return newLeases(k) })}, nil
}

// For returns the locks of an owner, such as a merchant, a tenant or an account: its stable id, at
// most 128 bytes of UTF-8. Locks of different owners are different locks, regardless of their keys. The
// owner leads the key of every row, so on a sharded database all locks of an owner are on its
// shard. For costs nothing and needs no Close: the Lockers of all owners share what New opened. Calls
// return [holdfast.ErrInvalid] for an owner that is not valid. A Locker of New has no owner, and is for
// a DB with holdfast.Options.SingleOwner, where no owner is named.
func (l *Locker[Tx]) For(owner string) *Locker[Tx] {
	of := *l
	of.owner = l.access.Owners.Owner(owner)
	return &of
}

// Owner returns the owner of the locks: see For.
func (l *Locker[Tx]) Owner() string { return l.owner.ID }

// DB returns the database that stores the locks.
func (l *Locker[Tx]) DB() *holdfast.DB[Tx] { return l.db }

// Packages fairlock and election share the Locker's keeper through package access: the API does not show it.
var _ = access.RegisterLocker(func(l any) any {
	return l.(interface{ keeper() *keeper.Keeper }).keeper() //nolint:forcetypeassert // it is a *Locker
})

func (l *Locker[Tx]) keeper() *keeper.Keeper { return l.leases.k }

// Close ends all leases, of all owners, and waits for background work. It releases the leases that are held,
// without those that have a [Handle], so end the work that they protect first. Waiting calls of Acquire return [ErrClosed]. Close is
// bounded by ctx and five seconds. A lease that is not released by then ends with
// its TTL.
func (l *Locker[Tx]) Close(ctx context.Context) error { return l.leases.k.Close(ctx) }
