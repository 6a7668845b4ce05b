package sqllock

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/internal/trace"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

// Leases are locks that were acquired together.
type Leases struct {
	leases []*Lease
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// AcquireAll waits until ctx ends for the locks on all keys, and acquires all or none. It
// acquires them in the order of the keys' bytes, so that calls that share keys do not deadlock.
// A key that is listed twice is locked once. While the call waits for the last locks, it holds
// and renews the first ones.
//
// Errors: those of Acquire, and [ErrLost] when one lock was lost before all were acquired.
// After an error none is held.
func (l *Locker[Tx]) AcquireAll(ctx context.Context, keys []string, opts ...AcquireOptions) (all *Leases, err error) {
	inner, op := l.leases.k.StartCall(ctx, "lease.acquire_all", trace.LockLease)
	defer func() { op.End(err, keeper.Acquired) }()
	s, wrong := l.settings(ctx, opts)
	return together(ctx, l.owner, keys, func(key string) (*Lease, error) {
		lease, err := l.leases.acquire(inner, l.owner, key, s, wrong)
		return (*Lease)(lease), err
	})
}

// TryAcquireAll is AcquireAll without waiting.
//
// Errors: [ErrHeld] as a *[HeldError] of the first key that is held, and those of
// AcquireAll.
func (l *Locker[Tx]) TryAcquireAll(ctx context.Context, keys []string, opts ...AcquireOptions) (all *Leases, err error) {
	inner, op := l.leases.k.StartCall(ctx, "lease.try_acquire_all", trace.LockLease)
	defer func() { op.End(err, keeper.Acquired) }()
	s, wrong := l.settings(ctx, opts)
	return together(ctx, l.owner, keys, func(key string) (*Lease, error) {
		lease, err := l.leases.tryAcquire(inner, l.owner, key, s, wrong)
		return (*Lease)(lease), err
	})
}

func together(ctx context.Context, owner core.Owner, keys []string, acquire func(key string) (*Lease, error)) (*Leases, error) {
	if len(keys) == 0 {
		return nil, keeper.Invalid("keys", "there is none")
	}
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	for _, key := range keys { // before anything is locked
		if _, err := lockname.Of(lockname.Lease, owner, key); err != nil {
			return nil, err
		}
	}
	all := &Leases{}
	all.ctx, all.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	for _, key := range keys {
		lease, err := acquire(key)
		if err != nil {
			_ = all.Release(ctx)
			return nil, err
		}
		all.leases = append(all.leases, lease)
		context.AfterFunc(lease.Context(), func() { all.cancel(context.Cause(lease.Context())) })
	}
	if all.Context().Err() != nil {
		cause := context.Cause(all.ctx)
		_ = all.Release(ctx)
		return nil, cause
	}
	return all, nil
}

// All returns the leases, in the order of their keys.
func (a *Leases) All() []*Lease { return slices.Clone(a.leases) }

// Terms returns the terms of all leases, for [Locker.Guard].
func (a *Leases) Terms() []Term {
	terms := make([]Term, len(a.leases))
	for i, l := range a.leases {
		terms[i] = l.Term()
	}
	return terms
}

// Context ends as soon as the context of one of the leases ends, with the same cause. Its Err reads the clock, as
// theirs do.
func (a *Leases) Context() context.Context { return jointly{a.ctx, a} }

// jointly is the context of several leases.
type jointly struct {
	context.Context

	of *Leases
}

// Err implements context.Context. It ends the context if that of a lease has ended.
func (c jointly) Err() error {
	for _, l := range c.of.leases {
		if l.Context().Err() != nil {
			c.of.cancel(context.Cause(l.Context()))
		}
	}
	return c.Context.Err()
}

// Release releases all leases, the last first, and joins the errors.
func (a *Leases) Release(ctx context.Context) error {
	a.cancel(ErrReleased)
	var errs []error
	for _, l := range slices.Backward(a.leases) {
		errs = append(errs, l.Release(ctx))
	}
	return errors.Join(errs...)
}
