package sqllock

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/trace"
)

// Semaphore grants up to so many permits on a key at once, to all processes
// together, in the order in which they were asked for: a call for many is not
// overtaken by calls for few. Its lock is another than those of a Locker or
// FairLocker on the same key.
type Semaphore[Tx any] struct {
	l       *Locker[Tx]
	key     string
	permits int
}

// Semaphore gives the semaphore on key, of 1 to [MaxPermits] permits. Nothing
// is read or written. All who use a key must name the same number.
//
// Errors: [holdfast.ErrInvalid].
func (l *Locker[Tx]) Semaphore(key string, permits int) (*Semaphore[Tx], error) {
	if _, err := nameOf(kindSemaphore, key); err != nil {
		return nil, err
	}
	if permits < 1 || permits > MaxPermits {
		return nil, invalid("permits", fmt.Sprintf("%d is not between 1 and %d", permits, MaxPermits))
	}
	return &Semaphore[Tx]{l, key, permits}, nil
}

// Acquire waits until ctx ends for n permits, 1 to all, which one lease then
// stands for. It gets all of them or none.
//
// Whoever has permits and waits for more may wait for others who do the same.
//
// Errors: those of [FairLocker.Acquire] ([ErrNested] when ctx's own lease has so
// many that n are never left); [ErrCapacity] as a *[CapacityError] while others
// use the key with another number of permits.
func (s *Semaphore[Tx]) Acquire(ctx context.Context, n int, opts ...Option) (*Lease, error) {
	return s.claim(ctx, n, false, opts)
}

// TryAcquire asks once for n permits. It does not overtake those who wait.
//
// Errors: [ErrHeld] as a *[HeldError] with the first in line, and those of
// Acquire.
func (s *Semaphore[Tx]) TryAcquire(ctx context.Context, n int, opts ...Option) (*Lease, error) {
	return s.claim(ctx, n, true, opts)
}

// Do is [Locker.Do] with this Acquire.
func (s *Semaphore[Tx]) Do(ctx context.Context, n int, fn func(ctx context.Context, lease *Lease) error, opts ...Option) error {
	return s.l.leases.during(ctx, "semaphore.do", trace.LockSemaphore, fn, func(ctx context.Context) (*Lease, error) { return s.Acquire(ctx, n, opts...) })
}

// Term is [Locker.Term] of the semaphore.
func (s *Semaphore[Tx]) Term(token int64) Term {
	return Term{kind: kindSemaphore, key: s.key, token: token, store: s.l.leases.store.id}
}

func (s *Semaphore[Tx]) claim(ctx context.Context, n int, now bool, opts []Option) (*Lease, error) {
	if n < 1 || n > s.permits {
		return nil, invalid("n", fmt.Sprintf("%d is not between 1 and the %d permits there are", n, s.permits))
	}
	return s.l.leases.claim(ctx, ask{kind: kindSemaphore, key: s.key, units: n, capacity: s.permits, now: now}, opts)
}
