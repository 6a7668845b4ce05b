package fairlock

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/internal/trace"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

// MaxPermits is the largest capacity of a semaphore, and the largest number of
// leases that share a lock.
const MaxPermits = 1 << 20

// Locker grants fair locks and permits. It is safe for concurrent use.
type Locker[Tx any] struct {
	owner   core.Owner
	tickets *tickets
}

// New returns the fair locks of a Locker, and so of its owner: see [sqllock.Locker.For]. A program with
// many owners gives locks.For("service") for locks of its own. The Locker renews the leases and ends them
// when it is closed. New does not access the database.
func New[Tx any](locks *sqllock.Locker[Tx]) *Locker[Tx] {
	k := access.Locker[*keeper.Keeper](locks)
	return &Locker[Tx]{access.Of(locks.DB()).Owners.Owner(locks.Owner()), keeper.Of(k, func() *tickets { return newTickets(k) })}
}

// Acquire waits until ctx ends for the exclusive lock on key. Locks are granted in the order in
// which tickets were committed. Among the goroutines of one Locker that is the order of their
// calls.
//
// There is no upgrade: a holder of the lock, shared or not, that calls Acquire or AcquireShared
// again waits for itself. Release first.
//
// Errors: those of [sqllock.Locker.Acquire]; [ErrNested] when ctx derives from the context of a
// held lease on the same lock; [holdfast.ErrUnknown] when the answer to the commit was lost,
// and then the ticket is returned in the background; [holdfast.ErrInvalid] for
// AcquireOptions.Reentry, because fair locks are not re-entrant.
func (l *Locker[Tx]) Acquire(ctx context.Context, key string, opts ...sqllock.AcquireOptions) (*sqllock.Lease, error) {
	return l.acquire(ctx, l.exclusive(key, false), opts)
}

// AcquireShared waits until ctx ends for the shared lock on key, which at most [MaxPermits]
// leases share. Otherwise it works like Acquire.
func (l *Locker[Tx]) AcquireShared(ctx context.Context, key string, opts ...sqllock.AcquireOptions) (*sqllock.Lease, error) {
	return l.acquire(ctx, l.shared(key, false), opts)
}

// TryAcquire tries once to acquire the exclusive lock on key. It does not overtake waiting
// calls.
//
// Errors: [sqllock.ErrHeld] as a *[sqllock.HeldError] with the holder of the first ticket, and
// the errors of Acquire.
func (l *Locker[Tx]) TryAcquire(ctx context.Context, key string, opts ...sqllock.AcquireOptions) (*sqllock.Lease, error) {
	return l.acquire(ctx, l.exclusive(key, true), opts)
}

// TryAcquireShared is TryAcquire for the shared lock.
func (l *Locker[Tx]) TryAcquireShared(ctx context.Context, key string, opts ...sqllock.AcquireOptions) (*sqllock.Lease, error) {
	return l.acquire(ctx, l.shared(key, true), opts)
}

// Do is [sqllock.Locker.Do] with [Locker.Acquire].
func (l *Locker[Tx]) Do(ctx context.Context, key string, fn func(ctx context.Context, lease *sqllock.Lease) error, opts ...sqllock.AcquireOptions) error {
	return l.do(ctx, "fair.do", trace.LockFair, l.exclusive(key, false), fn, opts)
}

// DoShared is [sqllock.Locker.Do] with [Locker.AcquireShared].
func (l *Locker[Tx]) DoShared(ctx context.Context, key string, fn func(ctx context.Context, lease *sqllock.Lease) error, opts ...sqllock.AcquireOptions) error {
	return l.do(ctx, "shared.do", trace.LockShared, l.shared(key, false), fn, opts)
}

// Term is [sqllock.Locker.Term] for a fair lock.
func (l *Locker[Tx]) Term(key string, token int64) sqllock.Term {
	return sqllock.Term(l.tickets.k.TermOf(lockname.Fair, l.owner, key, token))
}

func (l *Locker[Tx]) exclusive(key string, now bool) ask {
	return ask{kind: lockname.Fair, owner: l.owner, key: key, units: MaxPermits, capacity: MaxPermits, now: now}
}

func (l *Locker[Tx]) shared(key string, now bool) ask {
	return ask{kind: lockname.Fair, owner: l.owner, key: key, units: 1, capacity: MaxPermits, now: now}
}

func (l *Locker[Tx]) acquire(ctx context.Context, a ask, opts []sqllock.AcquireOptions) (*sqllock.Lease, error) {
	s, err := l.settings(ctx, opts)
	lease, err := l.tickets.acquire(ctx, a, s, err)
	return (*sqllock.Lease)(lease), err
}

func (l *Locker[Tx]) do(ctx context.Context, name, lock string, a ask, fn func(ctx context.Context, lease *sqllock.Lease) error, opts []sqllock.AcquireOptions) error {
	s, err := l.settings(ctx, opts)
	within, cancel := context.WithCancel(ctx) // leases are made under the keeper's mutex, which ctx may take in its Err
	defer cancel()
	s.Within = within
	acquire := func(ctx context.Context) (*keeper.Lease, error) { return l.tickets.acquire(ctx, a, s, err) }
	return l.tickets.k.Do(ctx, name, lock, acquire, func(ctx context.Context, lease *keeper.Lease) error { return fn(ctx, (*sqllock.Lease)(lease)) })
}

// settings returns the settings of one lease. Its context has the values of ctx.
func (l *Locker[Tx]) settings(ctx context.Context, opts []sqllock.AcquireOptions) (keeper.Settings, error) {
	o, err := options.One(opts)
	if err != nil {
		return keeper.Settings{}, err
	}
	if o.Reentry != nil {
		return keeper.Settings{}, keeper.Invalid("AcquireOptions.Reentry", "fair locks and semaphores are not re-entrant")
	}
	s, err := l.tickets.k.Options.Settings(o.TTL, o.NoRenewal)
	s.Values = ctx
	return s, err
}
