package fairlock

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/internal/trace"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

// Semaphore grants up to a number of permits on a key at once, across all processes, in the
// order in which tickets were committed. Calls for few permits do not overtake a call for many.
type Semaphore[Tx any] struct {
	l       *Locker[Tx]
	key     string
	permits int
}

// Semaphore returns the semaphore on key with 1 to [MaxPermits] permits. It does not access the
// database. All programs that use a key must use the same number of permits.
//
// Errors: [holdfast.ErrInvalid].
func (l *Locker[Tx]) Semaphore(key string, permits int) (*Semaphore[Tx], error) {
	if _, err := lockname.Of(lockname.Semaphore, l.owner, key); err != nil {
		return nil, err
	}
	if permits < 1 || permits > MaxPermits {
		return nil, keeper.Invalid("permits", fmt.Sprintf("%d is not between 1 and %d", permits, MaxPermits))
	}
	return &Semaphore[Tx]{l, key, permits}, nil
}

// Acquire waits until ctx ends for n permits, at least one and at most all. One lease stands
// for all n. A holder of permits that waits for more may wait for other holders that do the
// same.
//
// Errors: those of [Locker.Acquire], with [ErrNested] when the lease of ctx holds so many
// permits that n can never be free; [ErrCapacity] as a *[CapacityError] while other calls use
// the key with another number of permits.
func (s *Semaphore[Tx]) Acquire(ctx context.Context, n int, opts ...sqllock.AcquireOptions) (*sqllock.Lease, error) {
	if err := s.check(n); err != nil {
		return nil, err
	}
	return s.l.acquire(ctx, s.ask(n, false), opts)
}

// TryAcquire tries once to acquire n permits. It does not overtake waiting calls.
//
// Errors: [sqllock.ErrHeld] as a *[sqllock.HeldError] with the holder of the first ticket, and
// the errors of Acquire.
func (s *Semaphore[Tx]) TryAcquire(ctx context.Context, n int, opts ...sqllock.AcquireOptions) (*sqllock.Lease, error) {
	if err := s.check(n); err != nil {
		return nil, err
	}
	return s.l.acquire(ctx, s.ask(n, true), opts)
}

// Do is [sqllock.Locker.Do] with [Semaphore.Acquire].
func (s *Semaphore[Tx]) Do(ctx context.Context, n int, fn func(ctx context.Context, lease *sqllock.Lease) error, opts ...sqllock.AcquireOptions) error {
	if err := s.check(n); err != nil {
		return err
	}
	return s.l.do(ctx, "semaphore.do", trace.LockSemaphore, s.ask(n, false), fn, opts)
}

// Term is [sqllock.Locker.Term] for the semaphore.
func (s *Semaphore[Tx]) Term(token int64) sqllock.Term {
	return sqllock.Term(s.l.tickets.k.TermOf(lockname.Semaphore, s.l.owner, s.key, token))
}

func (s *Semaphore[Tx]) ask(n int, now bool) ask {
	return ask{kind: lockname.Semaphore, owner: s.l.owner, key: s.key, units: n, capacity: s.permits, now: now}
}

func (s *Semaphore[Tx]) check(n int) error {
	if n < 1 || n > s.permits {
		return keeper.Invalid("n", fmt.Sprintf("%d is not between 1 and the %d permits there are", n, s.permits))
	}
	return nil
}
