package fairlocks

import (
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// ticketsContendedSemaphore checks that the permits in use never exceed the capacity, and that
// calls do use several at a time.
func ticketsContendedSemaphore[Tx any](e *env[Tx]) {
	const permits = 5
	lockers := e.Lockers(3, sqllock.Options{})
	seen := &stays{}
	var wg sync.WaitGroup
	for i := range 48 {
		wg.Go(func() {
			s, err := fairlock.New(lockers[i%3]).Semaphore("key", permits)
			if err != nil {
				e.Error(err)
				return
			}
			for n := range e.many(3) {
				units := 1 + (i+n)%3
				dies := i%24 == 5 && n == 0
				var opts []sqllock.AcquireOptions
				if dies {
					opts = []sqllock.AcquireOptions{{TTL: conformance.ShortTTL, NoRenewal: true}}
				}
				asked := time.Now()
				lease, err := s.Acquire(e.Ctx, units, opts...)
				if err != nil {
					e.Error(err)
					return
				}
				st := seen.begin(lease, units, permits, asked)
				if dies {
					crash(lease, func() bool { return st.alive(lease) })
				} else {
					time.Sleep(20 * time.Millisecond) // long enough for the next call to arrive
					st.alive(lease)
					e.leaves(lease)
				}
				seen.end(st)
			}
		})
	}
	wg.Wait()
	e.judged(seen)
	e.Logf("%d grants, at most %d at once", len(seen.list), seen.most())
	if e.many(3) == 3 && seen.most() < 2 {
		e.Error("no two ever had permits at once")
	}
}

// ticketsCapacity checks that one key has one number of permits.
func ticketsCapacity[Tx any](e *env[Tx]) {
	lockers := e.Lockers(2, sqllock.Options{})
	three, err := fairlock.New(lockers[0]).Semaphore("key", 3)
	e.Check(err)
	four, err := fairlock.New(lockers[1]).Semaphore("key", 4)
	e.Check(err)
	same, err := fairlock.New(lockers[0]).Semaphore("key", 4) // in the process of the others
	e.Check(err)
	lease, err := three.Acquire(e.Ctx, 1)
	e.Check(err)
	for _, s := range []*fairlock.Semaphore[Tx]{four, same} {
		_, err := s.Acquire(e.Ctx, 1)
		_, tried := s.TryAcquire(e.Ctx, 1)
		for _, err := range []error{err, tried} {
			c := (*fairlock.CapacityError)(nil)
			if !errors.As(err, &c) || !errors.Is(err, fairlock.ErrCapacity) || c.Key != "key" || c.Permits != 4 || c.Others != 3 {
				e.Errorf("asked for with 4 permits: %v", err)
			}
		}
	}
	if n := e.Tickets(); n != 1 {
		e.Errorf("%d rows", n)
	}
	e.Check(lease.Release(e.Ctx))
	for _, ask := range []func() (*sqllock.Lease, error){
		func() (*sqllock.Lease, error) { return four.Acquire(e.Ctx, 4) },
		func() (*sqllock.Lease, error) { return four.TryAcquire(e.Ctx, 4) },
	} { // no ticket is left, or no live one
		lease, err = ask()
		e.Check(err)
		e.Check(lease.Release(e.Ctx))
		dead, err := three.Acquire(e.Ctx, 1, sqllock.AcquireOptions{TTL: conformance.ShortTTL, NoRenewal: true})
		e.Check(err)
		<-dead.Context().Done()
		e.Eventually("it has expired", func() bool {
			return e.Int(`SELECT COUNT(*) FROM holdfast_tickets WHERE expires_at > $1`, e.Now()) == 0
		})
	}
	lease, err = four.Acquire(e.Ctx, 1)
	e.Check(err)
	e.Check(lease.Release(e.Ctx))
}

// ticketsWeights checks that a call for many units is not overtaken by calls for few.
func ticketsWeights[Tx any](e *env[Tx]) {
	l := e.Lockers(1, sqllock.Options{})[0]
	s, err := fairlock.New(l).Semaphore("key", 3)
	e.Check(err)
	one, err := s.Acquire(e.Ctx, 1)
	e.Check(err)
	two, err := s.TryAcquire(e.Ctx, 2)
	e.Check(err)
	if _, err := s.TryAcquire(e.Ctx, 1); !errors.Is(err, sqllock.ErrHeld) {
		e.Errorf("a fourth permit of three: %v", err)
	}
	e.Check(two.Release(e.Ctx))
	got := make(chan *sqllock.Lease)
	go func() {
		lease, err := s.Acquire(e.Ctx, 3)
		if err != nil {
			e.Error(err)
		}
		got <- lease
	}()
	e.Eventually("it stands in line", func() bool { return e.Tickets() == 2 })
	if _, err := s.TryAcquire(e.Ctx, 1); !errors.Is(err, sqllock.ErrHeld) {
		e.Errorf("past one that waits: %v", err)
	}
	select {
	case lease := <-got:
		e.Fatalf("3 permits of 3 beside 1: %v", lease)
	case <-time.After(50 * time.Millisecond):
	}
	e.Check(one.Release(e.Ctx))
	if lease := <-got; lease != nil {
		e.Check(lease.Release(e.Ctx))
	}
}
