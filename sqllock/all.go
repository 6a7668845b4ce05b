package sqllock

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-go/holdfast/internal/trace"
)

// Leases are locks that were acquired together.
type Leases struct {
	leases []*Lease
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// AcquireAll waits for the locks on all keys, or gets none: in the order of
// their bytes, so that calls which share keys do not wait for each other in a
// circle, and within one ctx. A key that is named twice is locked once. The
// first locks are held, and renewed, while the last is waited for.
//
// Errors: those of Acquire, and [ErrLost] when one was lost meanwhile; then
// none is held.
func (l *Locker[Tx]) AcquireAll(ctx context.Context, keys []string, opts ...Option) (all *Leases, err error) {
	inner, op := l.leases.tell(ctx, "lease.acquire_all", trace.LockLease)
	defer func() { op.End(err, acquired) }()
	return together(ctx, keys, func(key string) (*Lease, error) { return l.Acquire(inner, key, withValues(ctx, opts)...) })
}

// TryAcquireAll is AcquireAll without a wait.
//
// Errors: [ErrHeld] as a *[HeldError] of the first key that is not to be had,
// and those of AcquireAll.
func (l *Locker[Tx]) TryAcquireAll(ctx context.Context, keys []string, opts ...Option) (all *Leases, err error) {
	inner, op := l.leases.tell(ctx, "lease.try_acquire_all", trace.LockLease)
	defer func() { op.End(err, acquired) }()
	return together(ctx, keys, func(key string) (*Lease, error) { return l.TryAcquire(inner, key, withValues(ctx, opts)...) })
}

func together(ctx context.Context, keys []string, acquire func(key string) (*Lease, error)) (*Leases, error) {
	if len(keys) == 0 {
		return nil, invalid("keys", "there is none")
	}
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	for _, key := range keys { // before anything is locked
		if _, err := nameOf(kindLease, key); err != nil {
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
	if cause := context.Cause(all.ctx); cause != nil {
		_ = all.Release(ctx)
		return nil, cause
	}
	return all, nil
}

// Each are the single leases, in the order of their keys.
func (a *Leases) Each() []*Lease { return slices.Clone(a.leases) }

// Terms are what Guard takes.
func (a *Leases) Terms() []Term {
	terms := make([]Term, len(a.leases))
	for i, l := range a.leases {
		terms[i] = l.Term()
	}
	return terms
}

// Context ends as soon as that of one of the leases does, with its cause.
func (a *Leases) Context() context.Context { return a.ctx }

// Release releases all, the last first, and joins the errors.
func (a *Leases) Release(ctx context.Context) error {
	a.cancel(ErrReleased)
	var errs []error
	for _, l := range slices.Backward(a.leases) {
		errs = append(errs, l.Release(ctx))
	}
	return errors.Join(errs...)
}
