package sqllock

import (
	"bytes"
	"context"

	"github.com/holdfast-go/holdfast/internal/trace"
)

// FairLocker grants locks in the order in which they were asked for, by all
// processes: exclusively, or shared by those who asked in a row. Nobody
// overtakes anybody, so readers that come and go do not starve a writer.
//
// Its locks are others than those of the Locker: a FairLocker's lock on a key
// and a Locker's lease on the same key do not exclude each other, so choose one
// of the two for a key.
//
// A place in the line lives as long as its process renews it: one that crashes
// is passed over when its TTL is over.
type FairLocker[Tx any] struct{ l *Locker[Tx] }

// Fair gives the fair locks of l.
func (l *Locker[Tx]) Fair() FairLocker[Tx] { return FairLocker[Tx]{l} }

// Acquire waits until ctx ends for the lock on key alone. The order is that in
// which the places in the line were committed, and among the goroutines of one
// Locker that in which they asked.
//
// Whoever has the lock, shared or not, and asks for it again with Acquire or
// AcquireShared, waits for itself: there is no upgrade. Release first.
//
// Errors: those of [Locker.Acquire]; [ErrNested] when ctx comes from a lease on
// the same lock that is held ([Lease.Context], or the context that Do gives);
// [holdfast.ErrUnknown] where the answer to the commit was lost, and then the
// place is given back in the background. [WithOwner] is refused.
func (f FairLocker[Tx]) Acquire(ctx context.Context, key string, opts ...Option) (*Lease, error) {
	return f.l.leases.claim(ctx, exclusive(key, false), opts)
}

// AcquireShared waits until ctx ends for the lock on key, together with others
// who share it, at most [MaxPermits]. Else it is as Acquire.
func (f FairLocker[Tx]) AcquireShared(ctx context.Context, key string, opts ...Option) (*Lease, error) {
	return f.l.leases.claim(ctx, shared(key, false), opts)
}

// TryAcquire asks once for the lock on key alone. It does not overtake those
// who wait for it.
//
// Errors: [ErrHeld] as a *[HeldError] with the first in line, and those of
// Acquire.
func (f FairLocker[Tx]) TryAcquire(ctx context.Context, key string, opts ...Option) (*Lease, error) {
	return f.l.leases.claim(ctx, exclusive(key, true), opts)
}

// TryAcquireShared is TryAcquire for the lock together with others.
func (f FairLocker[Tx]) TryAcquireShared(ctx context.Context, key string, opts ...Option) (*Lease, error) {
	return f.l.leases.claim(ctx, shared(key, true), opts)
}

// Do is [Locker.Do] with this Acquire.
func (f FairLocker[Tx]) Do(ctx context.Context, key string, fn func(ctx context.Context, lease *Lease) error, opts ...Option) error {
	return f.l.leases.during(ctx, "fair.do", trace.LockFair, fn, func(ctx context.Context) (*Lease, error) { return f.Acquire(ctx, key, opts...) })
}

// DoShared is [Locker.Do] with AcquireShared.
func (f FairLocker[Tx]) DoShared(ctx context.Context, key string, fn func(ctx context.Context, lease *Lease) error, opts ...Option) error {
	return f.l.leases.during(ctx, "shared.do", trace.LockShared, fn, func(ctx context.Context) (*Lease, error) { return f.AcquireShared(ctx, key, opts...) })
}

// Term is [Locker.Term] of a fair lock.
func (f FairLocker[Tx]) Term(key string, token int64) Term {
	return Term{kind: kindFair, key: key, token: token, store: f.l.leases.store.id}
}

func exclusive(key string, now bool) ask {
	return ask{kind: kindFair, key: key, units: MaxPermits, capacity: MaxPermits, now: now}
}

func shared(key string, now bool) ask {
	return ask{kind: kindFair, key: key, units: 1, capacity: MaxPermits, now: now}
}

// holdingKey finds in a context the lease under which it runs.
type holdingKey struct{}

func holding(ctx context.Context) *Lease {
	l, _ := ctx.Value(holdingKey{}).(*Lease)
	return l
}

// nested refuses to wait for what cannot be granted before ctx's own lease ends.
func (m *manager) nested(ctx context.Context, a ask, name []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	units := a.units
	for l := holding(ctx); l != nil; l = l.outer {
		if !l.live || l.m.store.id != m.store.id || !bytes.Equal(l.name, name) {
			continue
		}
		if units += l.claim.units; a.kind == kindFair || units > a.capacity {
			return &NestedError{Key: a.key, Token: l.term.token}
		}
	}
	return nil
}
