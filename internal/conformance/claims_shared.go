package conformance

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/sqllock"
)

// claimsReaders: as many as want share the lock at one time, in all processes.
func claimsReaders[Tx any](e *Env[Tx]) {
	lockers := e.lockers(3, sqllock.Options{})
	writer, err := lockers[0].Fair().Acquire(e.Ctx, "key")
	e.must(err)
	const n = 24
	var in, all sync.WaitGroup
	in.Add(n)
	for i := range n {
		all.Go(func() {
			lease, err := lockers[i%3].Fair().AcquireShared(e.Ctx, "key")
			if err != nil {
				e.Error(err)
				in.Done()
				return
			}
			in.Done()
			in.Wait() // for all the others
			if err := lease.Context().Err(); err != nil {
				e.Error(context.Cause(lease.Context()))
			}
			if err := lease.Release(e.Ctx); err != nil {
				e.Error(err)
			}
		})
	}
	e.Eventually("they stand in line", func() bool { return e.claims() == n+1 })
	e.must(writer.Release(e.Ctx))
	all.Wait()
}

// claimsWriter: readers that come and go never leave the lock, and a writer
// gets it: nobody who asked after it had it before.
func claimsWriter[Tx any](e *Env[Tx]) {
	lockers := e.lockers(3, sqllock.Options{})
	ctx, stop := context.WithCancel(e.Ctx)
	var tokens, readers sync.Map
	var wg sync.WaitGroup
	var rounds atomic.Int64
	for i := range 6 { // of which there is always one
		wg.Go(func() {
			var last *sqllock.Lease
			for ctx.Err() == nil {
				lease, err := lockers[i%3].Fair().AcquireShared(ctx, "key")
				if err != nil {
					break
				}
				readers.Store(lease.Token(), time.Now())
				rounds.Add(1)
				last = lease
				time.Sleep(time.Duration(5+i) * time.Millisecond)
				if err := lease.Release(e.Ctx); err != nil {
					e.Error(err)
				}
			}
			_ = last
		})
	}
	e.within(time.Minute, "readers come and go", func() bool { return rounds.Load() > 30 })
	for i := range 4 {
		lease, err := lockers[i%3].Fair().Acquire(e.Ctx, "key")
		if err != nil {
			e.Error(err)
			break
		}
		tokens.Store(lease.Token(), time.Now())
		if err := lease.Release(e.Ctx); err != nil {
			e.Error(err)
		}
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

// claimsContendedShared: readers and writers of three processes.
func claimsContendedShared[Tx any](e *Env[Tx]) {
	lockers := e.lockers(3, sqllock.Options{})
	seen := &stays{}
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			l := lockers[i%3].Fair()
			for n := range e.many(4) {
				acquire, units := l.AcquireShared, 1
				if (i+n)%5 == 0 {
					acquire, units = l.Acquire, sqllock.MaxPermits
				}
				dies := i == 9 && n == 0
				var opts []sqllock.Option
				if dies {
					opts = []sqllock.Option{sqllock.WithTTL(300 * time.Millisecond), sqllock.WithoutRenewal()}
				}
				asked := time.Now()
				lease, err := acquire(e.Ctx, "key", opts...)
				if err != nil {
					e.Error(err)
					return
				}
				st := seen.begin(lease, units, sqllock.MaxPermits, asked)
				if dies {
					crash(lease, func() bool { return st.alive(lease) })
				} else {
					time.Sleep(2 * time.Millisecond)
					st.alive(lease)
					if err := lease.Release(e.Ctx); err != nil {
						e.Error(err)
					}
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

// claimsNested: what would wait for itself is refused where it can be known.
func claimsNested[Tx any](e *Env[Tx]) {
	l := e.lockers(1, sqllock.Options{})[0]
	other := e.lockers(1, sqllock.Options{})[0]
	fair := l.Fair()
	refused := func(what string, lease *sqllock.Lease, err error, by *sqllock.Lease) {
		e.Helper()
		n := (*sqllock.NestedError)(nil)
		if !errors.As(err, &n) || !errors.Is(err, sqllock.ErrNested) || n.Key != by.Key() || n.Token != by.Token() {
			e.Errorf("%s: %v, %v", what, lease, err)
		}
	}
	err := fair.DoShared(e.Ctx, "key", func(ctx context.Context, mine *sqllock.Lease) error {
		up, err := fair.Acquire(ctx, "key")
		refused("upgrade", up, err, mine)
		up, err = other.Fair().Acquire(mine.Context(), "key")
		refused("upgrade with another Locker", up, err, mine)
		up, err = fair.AcquireShared(ctx, "key")
		refused("shared again", up, err, mine)
		// Other keys, kinds and contexts are no business of it.
		return fair.Do(ctx, "other", func(ctx context.Context, _ *sqllock.Lease) error {
			up, err = fair.Acquire(ctx, "key")
			refused("upgrade from within another", up, err, mine)
			return l.Do(ctx, "key", func(ctx context.Context, _ *sqllock.Lease) error {
				up, err = fair.Acquire(ctx, "key")
				refused("upgrade from within a lease", up, err, mine)
				again, err := fair.TryAcquireShared(ctx, "key")
				if err != nil {
					return err
				}
				return again.Release(ctx)
			})
		})
	})
	e.must(err)
	s, err := l.Semaphore("key", 3)
	e.must(err)
	e.must(s.Do(e.Ctx, 2, func(ctx context.Context, mine *sqllock.Lease) error {
		more, err := s.Acquire(ctx, 2)
		refused("2 of 3 and 2 more", more, err, mine)
		return s.Do(ctx, 1, func(context.Context, *sqllock.Lease) error { return nil })
	}))
	// A lease that has ended is no obstacle.
	mine, err := fair.AcquireShared(e.Ctx, "key")
	e.must(err)
	e.must(mine.Release(e.Ctx))
	up, err := fair.Acquire(context.WithoutCancel(mine.Context()), "key")
	e.must(err)
	e.must(up.Release(e.Ctx))
}
