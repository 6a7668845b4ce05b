package conformance

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/sqllock"
)

// many is n on the usual handle, and less on those that add little.
func (e *Env[Tx]) many(n int) int {
	if e.Handle.Name == "sqlx" {
		return max(n/4, 1)
	}
	return n
}

// crash holds a lease to its end, as one who is dead does, and is sure of it for
// as long as its context lives.
func crash(lease *sqllock.Lease, alive func() bool) {
	for alive() {
		select {
		case <-lease.Context().Done():
		case <-time.After(time.Millisecond):
		}
	}
}

// claimsContended: goroutines of three processes want one key alone, and some of
// the holders crash.
func claimsContended[Tx any](e *Env[Tx]) {
	lockers := e.lockers(3, sqllock.Options{})
	rec, seen := history.New(), &stays{}
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			l, c := lockers[i%3].Fair(), rec.Client(i)
			for n := range e.many(2) {
				dies := i%20 == 7 && n == 0
				var opts []sqllock.Option
				if dies {
					opts = []sqllock.Option{sqllock.WithTTL(300 * time.Millisecond), sqllock.WithoutRenewal()}
				}
				op, asked := c.Grant("key"), time.Now()
				lease, err := l.Acquire(e.Ctx, "key", opts...)
				if err != nil {
					e.Errorf("no deadlock, no serialization failure and no lock timeout is the caller's: %v", err)
					op.Unknown()
					return
				}
				term, st := op.Won(lease.Token(), time.Time{}), seen.begin(lease, sqllock.MaxPermits, sqllock.MaxPermits, asked)
				stop := term.Watch(lease.Context())
				if dies {
					crash(lease, func() bool { return st.alive(lease) })
				} else {
					st.alive(lease)
					end := term.Release()
					if err := lease.Release(e.Ctx); err != nil {
						e.Error(err)
						end.Unknown()
					} else {
						end.OK()
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

func (e *Env[Tx]) judged(s *stays) {
	e.Helper()
	for i, problem := range s.judge() {
		if i == 5 {
			break
		}
		e.Error(problem)
	}
}

// claimsOrder: grants come in the order in which the places were committed,
// whichever process asked.
func claimsOrder[Tx any](e *Env[Tx]) {
	lockers := e.lockers(3, sqllock.Options{})
	first, err := lockers[0].Fair().Acquire(e.Ctx, "key")
	e.must(err)
	var mu sync.Mutex
	var got []int
	var wg sync.WaitGroup
	const n = 12
	for i := range n {
		wg.Go(func() {
			err := lockers[i*7%3].Fair().Do(e.Ctx, "key", func(context.Context, *sqllock.Lease) error {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, i)
				return nil
			})
			if err != nil {
				e.Error(err)
			}
		})
		e.Eventually("it stands in line", func() bool { return e.claims() == i+2 })
	}
	e.must(first.Release(e.Ctx))
	wg.Wait()
	if !slices.IsSorted(got) || len(got) != n {
		e.Errorf("the order was %v", got)
	}
}

// claimsShares: all clients of all processes get the lock equally often. How
// often that is depends on the machine.
func claimsShares[Tx any](e *Env[Tx]) {
	lockers := e.lockers(3, sqllock.Options{})
	ctx, cancel := context.WithTimeout(e.Ctx, 2*time.Second)
	defer cancel()
	counts := make([]int, 16)
	var wg sync.WaitGroup
	for i := range counts {
		wg.Go(func() {
			for ctx.Err() == nil {
				lease, err := lockers[i%3].Fair().Acquire(ctx, "key")
				if err != nil {
					break
				}
				counts[i]++
				if err := lease.Release(ctx); err != nil {
					e.Error(err)
				}
			}
		})
	}
	wg.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	least, most := slices.Min(counts), slices.Max(counts)
	e.Logf("%d grants in 2 s to 16 clients in 3 processes, %d to %d each, max/min %.2f", total, least, most, float64(most)/float64(max(least, 1)))
	// Whoever has had it goes to the end, so nobody is ahead by more than the
	// rounds in which another has not come back yet: few, but the machine's.
	if most > 3*least+3 {
		e.Errorf("the counts are %v", counts)
	}
}

// claimsDead: those who wait and are dead by then, or hold and are, cost their
// TTL and no more. Nobody renews for a process that is gone: its pool is closed.
func claimsDead[Tx any](e *Env[Tx]) {
	const ttl = 2 * time.Second
	doomed := e.Handle.Open(e.T, e.DSN)
	other := *e
	other.Pool = doomed
	gone := other.lockers(1, sqllock.Options{TTL: ttl})[0].Fair()
	l := e.lockers(1, sqllock.Options{})[0].Fair()
	lost, err := gone.Acquire(e.Ctx, "key")
	e.must(err)
	ctx, cancel := context.WithCancel(e.Ctx)
	var wg sync.WaitGroup
	for i := range 3 { // who wait, and die
		wg.Go(func() {
			if _, err := gone.Acquire(ctx, "key"); err == nil {
				e.Error("a lock was granted without a database")
			}
		})
		e.Eventually("it stands in line", func() bool { return e.claims() == i+2 })
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
	e.Eventually("the last one stands in line", func() bool { return e.claims() == 5 })
	go doomed.Close() // some pools wait for what is under way
	if err := <-got; err != nil {
		e.Error(err)
	}
	cancel()
	wg.Wait()
	if n := e.claims(); n != 0 {
		e.Errorf("%d rows are left", n)
	}
}

// claimsCancelled: calls that end leave nobody in line, and the lock is not
// stuck.
func claimsCancelled[Tx any](e *Env[Tx]) {
	lockers := e.lockers(2, sqllock.Options{})
	first, err := lockers[0].Fair().Acquire(e.Ctx, "key")
	e.must(err)
	var wg sync.WaitGroup
	for i := range 40 { // at all moments
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(e.Ctx, time.Duration(i*i)*200*time.Microsecond)
			defer cancel()
			if lease, err := lockers[i%2].Fair().Acquire(ctx, "key"); !errors.Is(err, context.DeadlineExceeded) {
				e.Errorf("%v, %v", lease, err)
			}
		})
	}
	wg.Wait()
	e.Eventually("only the holder is left", func() bool { return e.claims() == 1 })
	behind := make(chan error)
	for i := range 2 { // the one in front leaves, the one behind gets it
		ctx, cancel := context.WithCancel(e.Ctx)
		go func() {
			lease, err := lockers[i].Fair().Acquire(ctx, "key")
			if err == nil {
				err = lease.Release(e.Ctx)
			}
			behind <- err
		}()
		e.Eventually("it stands in line", func() bool { return e.claims() == i+2 })
		if i == 0 {
			e.Cleanup(cancel)
			continue
		}
		e.must(first.Release(e.Ctx))
		if err := errors.Join(<-behind, <-behind); err != nil {
			e.Error(err)
		}
		cancel()
	}
	if n := e.claims(); n != 0 {
		e.Errorf("%d rows are left", n)
	}
	e.Eventually("no connection is out", func() bool { return e.InUse() == 0 })
}

// claimsThousand: who waits costs a row, and no connection.
func claimsThousand[Tx any](e *Env[Tx]) {
	l := e.lockers(1, sqllock.Options{TTL: 9 * time.Second})[0].Fair()
	first, err := l.Acquire(e.Ctx, "key")
	e.must(err)
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
			return e.claims() == want
		}
	}
	e.within(time.Minute, "all stand in line", count(n+1))
	oldest := e.Int(`SELECT MIN(expires_at) FROM holdfast_claims`)
	e.within(time.Minute, "all are renewed", func() bool {
		busiest = max(busiest, e.InUse())
		return e.Int(`SELECT MIN(expires_at) FROM holdfast_claims`) > oldest
	})
	if err := first.Context().Err(); err != nil {
		e.Errorf("the holder's lease: %v", context.Cause(first.Context()))
	}
	if busiest > 12 { // one joins, one looks, the renewals of a moment
		e.Errorf("%d connections were out for %d who wait", busiest, n)
	}
	cancel()
	wg.Wait()
	e.within(time.Minute, "only the holder is left", count(1))
	e.must(first.Release(e.Ctx))
}

// within waits until ok.
func (e *Env[Tx]) within(d time.Duration, what string, ok func() bool) {
	e.Helper()
	for end := time.Now().Add(d); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			e.Fatalf("not within %v: %s; %d rows", d, what, e.claims())
		}
	}
}

// claimsClosed: a Locker that is closed gives everything back.
func claimsClosed[Tx any](e *Env[Tx]) {
	l := e.lockers(1, sqllock.Options{})[0]
	lease, err := l.Fair().Acquire(e.Ctx, "key")
	e.must(err)
	answers := make(chan error, 9)
	for i := range 9 {
		go func() {
			_, err := l.Fair().Acquire(e.Ctx, "key")
			answers <- err
		}()
		if i == 4 { // the others may be on their way
			e.Eventually("some stand in line", func() bool { return e.claims() > 1 })
		}
	}
	e.must(l.Close(e.Ctx))
	for range 9 {
		if err := <-answers; !errors.Is(err, sqllock.ErrClosed) {
			e.Errorf("a call that waited: %v", err)
		}
	}
	if cause := context.Cause(lease.Context()); !errors.Is(cause, sqllock.ErrClosed) {
		e.Errorf("the lease ended with %v", cause)
	}
	if _, err := l.Fair().Acquire(e.Ctx, "key"); !errors.Is(err, sqllock.ErrClosed) {
		e.Errorf("a call afterwards: %v", err)
	}
	if n := e.claims(); n != 0 {
		e.Errorf("%d rows are left", n)
	}
}
