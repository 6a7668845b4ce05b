package staged

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// shortLease ends soon, but leaves time for a slow machine's statements.
const shortLease = time.Second

// paused runs an operation that stops in its external call. end lets its lease end there; resume
// continues it and returns the result.
func paused[Tx any](e *env[Tx], outside staged.ExternalCall[string], after func(key string) (string, error)) (end func(), resume func() error) {
	e.Helper()
	inside, free, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	f, s := e.stagedRefunds(dbtest.Hang)
	f.outside = outside
	f.call = func(_ context.Context, key string) (string, error) {
		close(inside)
		<-free
		return after(key)
	}
	go func() {
		_, err := s.Do(e.Ctx, stagedOp("a"), "a")
		ended <- err
	}()
	select {
	case <-inside:
	case err := <-ended:
		e.Fatal("the worker did not come to its call: ", err)
	}
	return e.endLeases, func() error { close(free); return <-ended }
}

// endLeases ends the leases of all workers, in the table.
func (e *env[Tx]) endLeases() {
	e.Helper()
	e.Must(`UPDATE holdfast_staged SET due_at = 1 WHERE attempt IS NOT NULL`)
}

// stagedStaleWorker checks that a worker which returns after its lease is refused when another
// worker has taken over; the money moved once.
func stagedStaleWorker[Tx any](e *env[Tx]) {
	outside := staged.ExternalCall[string]{OnLeaseEnd: staged.TakeOver}
	p := newProvider()
	end, resume := paused(e, outside, func(key string) (string, error) { return p.pay(key), nil })
	other := &refund[Tx]{e: e, provider: p, outside: outside}
	s := e.staged(other.stages(), idempotency.Options{})
	noWait := stagedOp("a")
	noWait.Wait = holdfast.NoWait
	if _, err := s.Do(e.Ctx, noWait, "a"); !errors.Is(err, idempotency.ErrInProgress) {
		e.Errorf("while the lease lasts: %v", err)
	}
	before := e.show("a")
	end()
	if r, err := s.Do(e.Ctx, stagedOp("a"), "a"); err != nil || r.Outcome != idempotency.Executed {
		e.Errorf("taking over: %v, %v", r, err)
	}
	err := resume()
	var stale *staged.StaleError
	if !errors.Is(err, staged.ErrStale) || !errors.As(err, &stale) || stale.Step != "pay" || stale.Token != before.Token || stale.Current <= stale.Token || stale.State != idempotency.StateSucceeded {
		e.Errorf("the stale worker: %v", err)
	}
	p.want(e, 1, 2)
	e.wantRefunded("a")
	if op := e.show("a"); op.Started != 2 || op.Finished != 1 {
		e.Errorf("%d attempts started, %d finished, want 2 and 1", op.Started, op.Finished)
	}
}

// stagedTwoWorkers checks that the stale worker is refused while the other worker is still
// running.
func stagedTwoWorkers[Tx any](e *env[Tx]) {
	outside := staged.ExternalCall[string]{OnLeaseEnd: staged.TakeOver}
	p := newProvider()
	end, resume := paused(e, outside, func(key string) (string, error) { return p.pay(key) + " by the stale one", nil })
	end()
	inside, free, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	other := &refund[Tx]{e: e, provider: p, outside: outside}
	other.call = func(_ context.Context, key string) (string, error) {
		close(inside)
		<-free
		return p.pay(key), nil
	}
	s := e.staged(other.stages(), idempotency.Options{})
	go func() {
		r, err := s.Do(e.Ctx, stagedOp("a"), "a")
		if r.Value != "paid with "+s.ProviderKey(ref("a"), "pay") {
			err = fmt.Errorf("the result is %q: %w", r.Value, err)
		}
		ended <- err
	}()
	select {
	case <-inside:
	case err := <-ended:
		e.Fatal("the other worker did not come to its call: ", err)
	}
	var stale *staged.StaleError
	if err := resume(); !errors.As(err, &stale) || stale.State != idempotency.StateInProgress || stale.Current <= stale.Token {
		e.Errorf("the stale worker: %v", err)
	}
	if op := e.wantState("a", idempotency.StateInProgress); op.Step != "pay" || op.Token != stale.Current {
		e.Errorf("the stale worker changed %+v", op)
	}
	close(free)
	if err := <-ended; err != nil {
		e.Error(err)
	}
	p.want(e, 1, 2)
	e.wantRefunded("a")
}

// stagedRenewed checks that a late worker continues if no other worker has replaced it. A worker
// that saw the lease end just before does not get the operation at the same time.
func stagedRenewed[Tx any](e *env[Tx]) {
	late, renewed, free, ended := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan error, 1)
	stages := staged.Workflow[string, string, Tx]{
		Name: "refund", Lease: shortLease,
		Run: func(ctx context.Context, r *staged.Run[Tx], key string) (string, error) {
			<-late
			_, err := staged.Call(ctx, r, staged.ExternalCall[string]{Step: "pay", Lease: time.Minute, OnLeaseEnd: staged.TakeOver}, func(context.Context, string) (string, error) {
				close(renewed)
				<-free
				return key, nil
			})
			return key, err
		},
	}
	s := e.staged(stages, idempotency.Options{})
	go func() {
		_, err := s.Do(e.Ctx, stagedOp("a"), "a")
		ended <- err
	}()
	e.Eventually("the lease has ended", func() bool {
		ops, err := core.First(9, operators.New(e.Store(idempotency.Options{})).List(e.Ctx, operators.Filter{States: []idempotency.State{idempotency.StateWaiting}, Overdue: time.Millisecond}))
		return err == nil && len(ops) == 1
	})
	// The other worker reads the row; then the first one continues; then the other one claims.
	var once sync.Once
	other := e.Handle.Open(e.T, e.DSN, holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, st holdfast.Statement) {
		if st.Name == "staged.look" {
			once.Do(func() { close(late); <-renewed })
		}
	}}})
	stages.Run = func(context.Context, *staged.Run[Tx], string) (string, error) {
		e.Error("two workers have one operation")
		return "", nil
	}
	t, err := staged.New(e.StoreOn(other.DB, idempotency.Options{}), stages)
	if err != nil {
		e.Fatal(err)
	}
	op := stagedOp("a")
	op.Wait = holdfast.NoWait
	if _, err := t.Do(e.Ctx, op, "a"); !errors.Is(err, idempotency.ErrInProgress) {
		e.Errorf("got %v", err)
	}
	close(free)
	if err := <-ended; err != nil {
		e.Error(err)
	}
}

// stagedStaleLocal checks that the writes of a stale worker's transaction are refused with it;
// the effect of its function is rolled back.
func stagedStaleLocal[Tx any](e *env[Tx]) {
	inside, free := make(chan struct{}), make(chan struct{})
	var once sync.Once
	work := func(block bool) staged.Workflow[string, string, Tx] {
		return staged.Workflow[string, string, Tx]{
			Name: "refund", Lease: dbtest.Hang,
			Run: func(ctx context.Context, r *staged.Run[Tx], key string) (string, error) {
				if _, err := staged.Local(ctx, r, "first", func(context.Context, Tx) (bool, error) { return true, nil }); err != nil {
					return "", err
				}
				if block {
					once.Do(func() { close(inside); <-free })
				}
				// The worker was stopped: its context does not protect it.
				return staged.Local(context.WithoutCancel(ctx), r, "second", func(ctx context.Context, tx Tx) (string, error) {
					return "done", e.Effect(ctx, tx, key)
				})
			},
		}
	}
	ended := make(chan error, 1)
	slow, quick := e.staged(work(true), idempotency.Options{}), e.staged(work(false), idempotency.Options{})
	go func() {
		_, err := slow.Do(e.Ctx, stagedOp("a"), "a")
		ended <- err
	}()
	select {
	case <-inside:
	case err := <-ended:
		e.Fatalf("the slow worker: %v", err)
	}
	e.endLeases()
	if r, err := quick.Do(e.Ctx, stagedOp("a"), "a"); err != nil || r.Value != "done" {
		e.Errorf("taking over: %v, %v", r, err)
	}
	close(free)
	// It finds the step done already and is refused at the end.
	if err := <-ended; !errors.Is(err, staged.ErrStale) {
		e.Errorf("the stale worker: %v", err)
	}
	e.WantOnce("a")
}
