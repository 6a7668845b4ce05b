package leases

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/election"
)

func reentry[Tx any](e *env[Tx]) {
	l, other := e.locker("one"), e.locker("other")
	id := sqllock.NewReentry()
	as := sqllock.AcquireOptions{Reentry: id}
	first := e.TryAcquire(l, "k", as)
	second, err := l.Acquire(e.Ctx, "k", as)
	e.Check(err)
	third := e.TryAcquire(l, "k", as)
	if second.Token() != first.Token() || third.Token() != first.Token() {
		e.Errorf("tokens %d, %d, %d", first.Token(), second.Token(), third.Token())
	}
	for _, locker := range []*sqllock.Locker[Tx]{l, other} {
		for _, opts := range [][]sqllock.AcquireOptions{nil, {{Reentry: sqllock.NewReentry()}}} {
			if _, err := locker.TryAcquire(e.Ctx, "k", opts...); !errors.Is(err, sqllock.ErrHeld) {
				e.Errorf("somebody else: %v", err)
			}
		}
	}
	e.Check(first.Release(e.Ctx))
	e.Check(third.Release(e.Ctx))
	if _, err := other.TryAcquire(e.Ctx, "k"); !errors.Is(err, sqllock.ErrHeld) || second.Context().Err() != nil {
		e.Errorf("released once too few and free: %v", err)
	}
	e.Check(second.Release(e.Ctx))
	if second.Context().Err() == nil {
		e.Error("the context goes on")
	}
	e.Check(e.TryAcquire(other, "k").Release(e.Ctx))

	// Waiting calls with one Reentry get the lock together.
	blocker := e.TryAcquire(l, "k")
	var running sync.WaitGroup
	inside := make(chan *sqllock.Lease, 3)
	for range 3 {
		running.Go(func() {
			lease, err := l.Acquire(e.Ctx, "k", as)
			if err != nil {
				e.Error(err)
				return
			}
			inside <- lease
		})
	}
	time.Sleep(20 * time.Millisecond)
	e.Check(blocker.Release(e.Ctx))
	running.Wait()
	for range 3 {
		e.Check((<-inside).Release(e.Ctx))
	}
	e.Check(e.TryAcquire(other, "k").Release(e.Ctx))

	// A lease that calls share does not end with the context of one of them.
	ctx, end := context.WithCancel(e.Ctx)
	defer end()
	var shared *sqllock.Lease
	e.Check(l.Do(ctx, "k", func(context.Context, *sqllock.Lease) (err error) {
		shared, err = l.Acquire(e.Ctx, "k", as)
		return err
	}, as))
	end()
	if _, err := other.TryAcquire(e.Ctx, "k"); !errors.Is(err, sqllock.ErrHeld) || shared.Context().Err() != nil {
		e.Errorf("%v; its context: %v", err, context.Cause(shared.Context()))
	}
	e.Check(shared.Release(e.Ctx))
}

func elections[Tx any](e *env[Tx]) {
	type candidate struct {
		*election.Election[Tx]
		name string
	}
	var candidates []candidate
	for _, name := range []string{"a", "b", "c"} {
		candidates = append(candidates, candidate{election.New(e.locker(name), "leader"), name})
	}
	if _, leads, err := candidates[0].Leader(e.Ctx); leads || err != nil {
		e.Fatal(leads, err)
	}
	ctx, cancel := context.WithCancel(e.Ctx)
	var running sync.WaitGroup
	terms := make(chan int64, 64)
	var mu sync.Mutex
	leaders := 0
	for _, c := range candidates {
		running.Go(func() {
			for range 5 {
				leader, err := c.Campaign(ctx, []byte(c.name))
				if err != nil {
					e.Error(err)
					return
				}
				mu.Lock()
				if leaders++; leaders > 1 {
					e.Error("two leaders")
				}
				info, leads, err := c.Leader(ctx)
				if err != nil || !leads || info.Holder != c.name || string(info.Value) != c.name {
					e.Errorf("%s leads and sees %+v, %v", c.name, info, err)
				}
				leaders--
				mu.Unlock()
				terms <- leader.Token()
				if err := leader.Resign(ctx); err != nil {
					e.Error(err)
				}
			}
		})
	}
	running.Wait()
	cancel()
	for last := int64(0); len(terms) > 0; {
		term := <-terms
		if term <= last {
			e.Errorf("term %d after %d", term, last)
		}
		last = term
	}
	if _, err := candidates[0].Campaign(e.Ctx, make([]byte, sqllock.MaxValue+1)); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("got %v", err)
	}
}

// electionRun leads three times: until the function fails, until an operator takes the leadership away, and
// until the function is done.
func electionRun[Tx any](e *env[Tx]) {
	l, operator := e.locker("one"), e.locker("operator")
	settlement := election.New(l, "leader")
	failed, last, leads := errors.New("failed"), int64(0), 0
	err := settlement.Run(e.Ctx, []byte("a"), func(ctx context.Context, leader *election.Leader) error {
		if leads++; leader.Token() <= last {
			e.Errorf("token %d after %d", leader.Token(), last)
		}
		last = leader.Token()
		info, found, err := election.New(operator, "leader").Leader(ctx)
		if err != nil || !found || string(info.Value) != "a" || info.Token != last {
			e.Errorf("leader %d sees %+v, %v, %v", leads, info, found, err)
		}
		switch leads {
		case 1:
			return failed
		case 2:
			if _, err := operator.ForceRelease(ctx, "leader", 0, holdfast.Actor{By: "test", Reason: "a test"}); err != nil {
				e.Error(err)
			}
			if err := leader.SetValue(ctx, []byte("b")); !errors.Is(err, sqllock.ErrLost) {
				e.Errorf("after the leadership was taken away: %v", err)
			}
			<-leader.Context().Done()
		}
		return nil
	})
	if err != nil || leads != 3 {
		e.Errorf("%v after %d leaderships", err, leads)
	}
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(e.Ctx)
	err = settlement.Run(ctx, nil, func(_ context.Context, leader *election.Leader) error {
		cancel(stop)
		<-leader.Context().Done()
		return nil
	})
	if !errors.Is(err, stop) {
		e.Errorf("a context that has ended: %v", err)
	}
	never := func(context.Context, *election.Leader) error { e.Error("leads"); return nil }
	if err := settlement.Run(e.Ctx, make([]byte, sqllock.MaxValue+1), never); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("a value that is too long: %v", err)
	}
	if err := election.New(l, "").Run(e.Ctx, nil, never); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("no key: %v", err)
	}
	e.Check(l.Close(e.Ctx))
	if err := settlement.Run(e.Ctx, nil, never); !errors.Is(err, sqllock.ErrClosed) {
		e.Errorf("a closed Locker: %v", err)
	}
}

func observe[Tx any](e *env[Tx]) {
	l := e.locker("one")
	ctx, cancel := context.WithCancel(e.Ctx)
	defer cancel()
	seen := make(chan sqllock.Info, 64)
	done := make(chan struct{})
	observer := e.locker("observer")
	go func() {
		defer close(done)
		for info, err := range election.New(observer, "leader").Observe(ctx) {
			if err == nil {
				seen <- info
			} else if !errors.Is(err, context.Canceled) {
				e.Error(err)
			}
		}
	}()
	next := func(held bool, value string) {
		e.Helper()
		select {
		case i := <-seen:
			if i.Held != held || !bytes.Equal(i.Value, []byte(value)) {
				e.Errorf("observed %+v, want held %v, value %q", i, held, value)
			}
		case <-e.Ctx.Done():
			e.Fatal("nothing was observed")
		}
	}
	next(false, "")
	leader, err := election.New(l, "leader").Campaign(e.Ctx, nil)
	e.Check(err)
	next(true, "")
	e.Check(leader.SetValue(e.Ctx, []byte("x")))
	next(true, "x")
	e.Check(leader.Resign(e.Ctx))
	next(false, "")
	lease := e.TryAcquire(l, "leader")
	next(true, "")
	handle, err := lease.Handle()
	e.Check(err)
	resumed, err := e.locker("two").Resume(e.Ctx, handle) // another holder of the same term
	e.Check(err)
	next(true, "")
	e.Check(resumed.Release(e.Ctx))
	next(false, "")
	cancel()
	<-done
}
