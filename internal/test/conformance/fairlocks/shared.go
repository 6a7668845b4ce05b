package fairlocks

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// ticketsReaders checks that any number of readers share the lock at one time, in all processes.
func ticketsReaders[Tx any](e *env[Tx]) {
	lockers := e.Lockers(3, sqllock.Options{})
	writer, err := fairlock.New(lockers[0]).Acquire(e.Ctx, "key")
	e.Check(err)
	const n = 24
	var in, all sync.WaitGroup
	in.Add(n)
	for i := range n {
		all.Go(func() {
			lease, err := fairlock.New(lockers[i%3]).AcquireShared(e.Ctx, "key")
			if err != nil {
				e.Error(err)
				in.Done()
				return
			}
			in.Done()
			in.Wait() // waits for all the others
			if err := lease.Context().Err(); err != nil {
				e.Error(context.Cause(lease.Context()))
			}
			e.leaves(lease)
		})
	}
	e.Eventually("they stand in line", func() bool { return e.Tickets() == n+1 })
	e.Check(writer.Release(e.Ctx))
	all.Wait()
}

// ticketsWriter lets readers come and go, so that one always holds the lock. A writer gets the
// lock before every reader that called later.
func ticketsWriter[Tx any](e *env[Tx]) {
	lockers := e.Lockers(3, sqllock.Options{})
	ctx, stop := context.WithCancel(e.Ctx)
	var tokens, readers sync.Map
	var wg sync.WaitGroup
	var rounds atomic.Int64
	for i := range 6 { // at least one always holds the lock
		wg.Go(func() {
			var last *sqllock.Lease
			for ctx.Err() == nil {
				lease, err := fairlock.New(lockers[i%3]).AcquireShared(ctx, "key")
				if err != nil {
					break
				}
				readers.Store(lease.Token(), time.Now())
				rounds.Add(1)
				last = lease
				time.Sleep(time.Duration(5+i) * time.Millisecond)
				e.leaves(lease)
			}
			_ = last
		})
	}
	e.Eventually("readers come and go", func() bool { return rounds.Load() > 30 })
	for i := range 4 {
		lease, err := fairlock.New(lockers[i%3]).Acquire(e.Ctx, "key")
		if err != nil {
			e.Error(err)
			break
		}
		tokens.Store(lease.Token(), time.Now())
		e.leaves(lease)
	}
	stop()
	wg.Wait()
	tokens.Range(func(w, at any) bool {
		readers.Range(func(r, had any) bool {
			if r.(int64) > w.(int64) && had.(time.Time).Before(at.(time.Time)) {
				e.Errorf("reader %d was before writer %d", r, w)
			}
			return true
		})
		return true
	})
}

// ticketsContendedShared runs readers and writers of three processes.
func ticketsContendedShared[Tx any](e *env[Tx]) {
	lockers := e.Lockers(3, sqllock.Options{})
	seen := &stays{}
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			l := fairlock.New(lockers[i%3])
			for n := range e.many(4) {
				acquire, units := l.AcquireShared, 1
				if (i+n)%5 == 0 {
					acquire, units = l.Acquire, fairlock.MaxPermits
				}
				dies := i == 9 && n == 0
				var opts []sqllock.AcquireOptions
				if dies {
					opts = []sqllock.AcquireOptions{{TTL: conformance.ShortTTL, NoRenewal: true}}
				}
				asked := time.Now()
				lease, err := acquire(e.Ctx, "key", opts...)
				if err != nil {
					e.Error(err)
					return
				}
				st := seen.begin(lease, units, fairlock.MaxPermits, asked)
				if dies {
					crash(lease, func() bool { return st.alive(lease) })
				} else {
					time.Sleep(2 * time.Millisecond)
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
	if e.many(4) == 4 && seen.most() < 2 {
		e.Error("no two ever shared it")
	}
}

// ticketsNested checks that a call that would wait for itself is refused, where this can be
// known.
func ticketsNested[Tx any](e *env[Tx]) {
	l := e.Lockers(1, sqllock.Options{})[0]
	other := e.Lockers(1, sqllock.Options{})[0]
	fair := fairlock.New(l)
	refused := func(what string, lease *sqllock.Lease, err error, by *sqllock.Lease) {
		e.Helper()
		n := (*fairlock.NestedError)(nil)
		if !errors.As(err, &n) || !errors.Is(err, fairlock.ErrNested) || n.Key != by.Key() || n.Token != by.Token() {
			e.Errorf("%s: %v, %v", what, lease, err)
		}
	}
	err := fair.DoShared(e.Ctx, "key", func(_ context.Context, mine *sqllock.Lease) error {
		up, err := fair.Acquire(mine.Context(), "key")
		refused("upgrade", up, err, mine)
		up, err = fairlock.New(other).Acquire(mine.Context(), "key")
		refused("upgrade with another Locker", up, err, mine)
		up, err = fair.AcquireShared(mine.Context(), "key")
		refused("shared again", up, err, mine)
		// Other keys, kinds and contexts are not affected.
		return fair.Do(mine.Context(), "other", func(_ context.Context, inner *sqllock.Lease) error {
			up, err = fair.Acquire(inner.Context(), "key")
			refused("upgrade from within another", up, err, mine)
			return l.Do(inner.Context(), "key", func(_ context.Context, lease *sqllock.Lease) error {
				up, err = fair.Acquire(lease.Context(), "key")
				refused("upgrade from within a lease", up, err, mine)
				again, err := fair.TryAcquireShared(lease.Context(), "key")
				if err != nil {
					return err
				}
				return again.Release(e.Ctx)
			})
		})
	})
	e.Check(err)
	s, err := fairlock.New(l).Semaphore("key", 3)
	e.Check(err)
	e.Check(s.Do(e.Ctx, 2, func(_ context.Context, mine *sqllock.Lease) error {
		more, err := s.Acquire(mine.Context(), 2)
		refused("2 of 3 and 2 more", more, err, mine)
		return s.Do(mine.Context(), 1, func(context.Context, *sqllock.Lease) error { return nil })
	}))
	// A lease that has ended does not block.
	mine, err := fair.AcquireShared(e.Ctx, "key")
	e.Check(err)
	e.Check(mine.Release(e.Ctx))
	up, err := fair.Acquire(context.WithoutCancel(mine.Context()), "key")
	e.Check(err)
	e.Check(up.Release(e.Ctx))
}
