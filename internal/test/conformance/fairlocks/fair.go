package fairlocks

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/history"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// many returns n on the usual handle, and less on handles that add little.
func (e *env[Tx]) many(n int) int {
	if strings.HasPrefix(e.Handle.Name, "sqlx") {
		return max(n/4, 1)
	}
	return n
}

// crash keeps a lease until it ends, as a dead holder does. It trusts the lease as long as its
// context is alive.
func crash(lease *sqllock.Lease, alive func() bool) {
	for alive() {
		select {
		case <-lease.Context().Done():
		case <-time.After(time.Millisecond):
		}
	}
}

// ticketsContended lets goroutines of three processes compete for one exclusive key; some
// holders crash.
func ticketsContended[Tx any](e *env[Tx]) {
	lockers := e.Lockers(3, sqllock.Options{})
	rec, seen := history.New(), &stays{}
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			l, c := fairlock.New(lockers[i%3]), rec.Client(i)
			for n := range e.many(2) {
				dies := i%20 == 7 && n == 0
				var opts []sqllock.AcquireOptions
				if dies {
					opts = []sqllock.AcquireOptions{{TTL: conformance.ShortTTL, NoRenewal: true}}
				}
				op, asked := c.Grant("key"), time.Now()
				lease, err := l.Acquire(e.Ctx, "key", opts...)
				if err != nil {
					e.Errorf("no deadlock, no serialization failure and no lock timeout is the caller's: %v", err)
					op.Unknown()
					return
				}
				term, st := op.Won(lease.Token(), time.Time{}), seen.begin(lease, fairlock.MaxPermits, fairlock.MaxPermits, asked)
				stop := term.Watch(lease.Context())
				if dies {
					crash(lease, func() bool { return st.alive(lease) })
				} else {
					st.alive(lease)
					end := term.Release()
					if e.leaves(lease) {
						end.OK()
					} else {
						end.Unknown()
					}
				}
				stop()
				seen.end(st)
			}
		})
	}
	wg.Wait()
	history.Check(e.T, rec.History())
	e.judged(seen)
}

// leaves releases a lease and reports whether the server confirmed it. On a busy machine the
// release's own timeout may end first; then it continues in the background.
func (e *env[Tx]) leaves(lease *sqllock.Lease) bool {
	e.Helper()
	err := lease.Release(e.Ctx)
	if err != nil && (errors.Is(err, sqllock.ErrLost) || !errors.Is(err, context.DeadlineExceeded)) {
		e.Error(err)
	}
	return err == nil
}

func (e *env[Tx]) judged(s *stays) {
	e.Helper()
	for i, problem := range s.judge() {
		if i == 5 {
			break
		}
		e.Error(problem)
	}
}

// ticketsOrder checks that grants come in the order in which the tickets were committed, from
// whichever process.
func ticketsOrder[Tx any](e *env[Tx]) {
	lockers := e.Lockers(3, sqllock.Options{})
	first, err := fairlock.New(lockers[0]).Acquire(e.Ctx, "key")
	e.Check(err)
	var mu sync.Mutex
	var got []int
	var wg sync.WaitGroup
	const n = 12
	for i := range n {
		wg.Go(func() {
			err := fairlock.New(lockers[i*7%3]).Do(e.Ctx, "key", func(context.Context, *sqllock.Lease) error {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, i)
				return nil
			})
			if err != nil {
				e.Error(err)
			}
		})
		e.Eventually("it stands in line", func() bool { return e.Tickets() == i+2 })
	}
	e.Check(first.Release(e.Ctx))
	wg.Wait()
	if !slices.IsSorted(got) || len(got) != n {
		e.Errorf("the order was %v", got)
	}
}

// ticketsShares lets clients of all processes return at once and checks that each gets the lock
// again and again: none starves. ticketsContended checks that none is overtaken.
func ticketsShares[Tx any](e *env[Tx]) {
	lockers := e.Lockers(3, sqllock.Options{})
	ctx, cancel := context.WithCancel(e.Ctx)
	defer cancel()
	counts := make([]atomic.Int64, 16)
	var wg sync.WaitGroup
	for i := range counts {
		wg.Go(func() {
			for ctx.Err() == nil {
				lease, err := fairlock.New(lockers[i%3]).Acquire(ctx, "key")
				if err != nil {
					break
				}
				counts[i].Add(1)
				e.leaves(lease)
			}
		})
	}
	all := func() (n []int64) {
		for i := range counts {
			n = append(n, counts[i].Load())
		}
		return n
	}
	e.Eventually("each of 16 clients has had the lock ten times", func() bool { return slices.Min(all()) >= 10 })
	cancel()
	wg.Wait()
	e.Logf("grants to each of 16 clients in 3 processes: %v", all())
}

// ticketsDead checks that dead waiters and dead holders cost at most their TTL. A process that
// is gone renews nothing: its pool is closed.
func ticketsDead[Tx any](e *env[Tx]) {
	const ttl = 2 * time.Second
	doomed := e.Handle.Open(e.T, e.DSN)
	other := *e
	other.Pool = doomed
	gone := fairlock.New(other.Lockers(1, sqllock.Options{TTL: ttl})[0])
	l := fairlock.New(e.Lockers(1, sqllock.Options{})[0])
	lost, err := gone.Acquire(e.Ctx, "key")
	e.Check(err)
	ctx, cancel := context.WithCancel(e.Ctx)
	var wg sync.WaitGroup
	for i := range 3 { // these wait and die
		wg.Go(func() {
			if _, err := gone.Acquire(ctx, "key"); err == nil {
				e.Error("a lock was granted without a database")
			}
		})
		e.Eventually("it stands in line", func() bool { return e.Tickets() == i+2 })
	}
	got := make(chan error)
	go func() {
		lease, err := l.Acquire(e.Ctx, "key")
		if err == nil && lost.Context().Err() == nil {
			err = errors.New("two have the lock")
		}
		if err == nil {
			err = lease.Release(e.Ctx)
		}
		got <- err
	}()
	e.Eventually("the last one stands in line", func() bool { return e.Tickets() == 5 })
	go doomed.Close() // some pools wait for statements in progress
	if err := <-got; err != nil {
		e.Error(err)
	}
	cancel()
	wg.Wait()
	if n := e.Tickets(); n != 0 {
		e.Errorf("%d rows are left", n)
	}
}

// ticketsCancelled checks that cancelled calls leave no ticket in the queue, and that the lock
// does not get stuck.
func ticketsCancelled[Tx any](e *env[Tx]) {
	lockers := e.Lockers(2, sqllock.Options{})
	first, err := fairlock.New(lockers[0]).Acquire(e.Ctx, "key")
	e.Check(err)
	var wg sync.WaitGroup
	for i := range 40 { // at any moment
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(e.Ctx, time.Duration(i*i)*200*time.Microsecond)
			defer cancel()
			if lease, err := fairlock.New(lockers[i%2]).Acquire(ctx, "key"); !errors.Is(err, context.DeadlineExceeded) {
				e.Errorf("%v, %v", lease, err)
			}
		})
	}
	wg.Wait()
	e.Eventually("only the holder is left", func() bool { return e.Tickets() == 1 })
	behind := make(chan error)
	for i := range 2 { // the first one leaves, the second one gets the lock
		ctx, cancel := context.WithCancel(e.Ctx)
		go func() {
			lease, err := fairlock.New(lockers[i]).Acquire(ctx, "key")
			if err == nil {
				err = lease.Release(e.Ctx)
			}
			behind <- err
		}()
		e.Eventually("it stands in line", func() bool { return e.Tickets() == i+2 })
		if i == 0 {
			e.Cleanup(cancel)
			continue
		}
		e.Check(first.Release(e.Ctx))
		if err := errors.Join(<-behind, <-behind); err != nil {
			e.Error(err)
		}
		cancel()
	}
	if n := e.Tickets(); n != 0 {
		e.Errorf("%d rows are left", n)
	}
	e.Eventually("no connection is out", func() bool { return e.InUse() == 0 })
}

// ticketsThousand checks that a waiting call costs a row and no connection.
func ticketsThousand[Tx any](e *env[Tx]) {
	dbtest.NotUnderRace(e, "a thousand waiters are too many for it")
	l := fairlock.New(e.Lockers(1, sqllock.Options{TTL: 9 * time.Second})[0])
	first, err := l.Acquire(e.Ctx, "key", sqllock.AcquireOptions{TTL: dbtest.Hang})
	e.Check(err)
	ctx, cancel := context.WithCancel(e.Ctx)
	var wg sync.WaitGroup
	n := e.many(1000)
	for range n {
		wg.Go(func() {
			if _, err := l.Acquire(ctx, "key"); !errors.Is(err, context.Canceled) {
				e.Error(err)
			}
		})
	}
	busiest := 0
	count := func(want int) func() bool {
		return func() bool {
			busiest = max(busiest, e.InUse())
			return e.Tickets() == want
		}
	}
	e.Eventually("all stand in line", count(n+1))
	oldest := e.Int(`SELECT MIN(expires_at) FROM holdfast_tickets`)
	e.Eventually("all are renewed", func() bool {
		busiest = max(busiest, e.InUse())
		return e.Int(`SELECT MIN(expires_at) FROM holdfast_tickets`) > oldest
	})
	if err := first.Context().Err(); err != nil {
		e.Errorf("the holder's lease: %v", context.Cause(first.Context()))
	}
	if busiest > max(12, n/10) { // one joins, one polls, and a moment's renewals
		e.Errorf("%d connections were out for %d who wait", busiest, n)
	}
	cancel()
	wg.Wait()
	e.Eventually("only the holder is left", count(1))
	e.Check(first.Release(e.Ctx))
}

// ticketsClosed checks that a closed Locker releases everything.
func ticketsClosed[Tx any](e *env[Tx]) {
	l := e.Lockers(1, sqllock.Options{})[0]
	lease, err := fairlock.New(l).Acquire(e.Ctx, "key")
	e.Check(err)
	answers := make(chan error, 9)
	for i := range 9 {
		go func() {
			_, err := fairlock.New(l).Acquire(e.Ctx, "key")
			answers <- err
		}()
		if i == 4 { // the other calls may still be on their way
			e.Eventually("some stand in line", func() bool { return e.Tickets() > 1 })
		}
	}
	e.Check(l.Close(e.Ctx))
	for range 9 {
		if err := <-answers; !errors.Is(err, sqllock.ErrClosed) {
			e.Errorf("a call that waited: %v", err)
		}
	}
	if cause := context.Cause(lease.Context()); !errors.Is(cause, sqllock.ErrClosed) {
		e.Errorf("the lease ended with %v", cause)
	}
	if _, err := fairlock.New(l).Acquire(e.Ctx, "key"); !errors.Is(err, sqllock.ErrClosed) {
		e.Errorf("a call afterwards: %v", err)
	}
	if n := e.Tickets(); n != 0 {
		e.Errorf("%d rows are left", n)
	}
}
