package operations

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// Flights is the suite of different requests under one key that meet in one process.
func Flights[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Run("ClaimantMeetsAWrongDuplicate", func(t *testing.T) {
		t.Parallel()
		dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
			if h.Runs(engine) {
				claimantMeetsAWrongDuplicate(t, h, engine)
			}
		})
	})
	t.Run("WaitsInOneStatement", func(t *testing.T) {
		t.Parallel()
		run(t, h, waitsInOneStatement[Tx])
	})
	t.Run("FailedLeaderIsNoMismatch", func(t *testing.T) {
		t.Parallel()
		run(t, h, failedLeaderIsNoMismatch[Tx])
	})
}

// waitsInOneStatement waits for the key of another process in the claim, as long as a lock may be waited for: it does
// not ask again and again.
func waitsInOneStatement[Tx any](e *env[Tx]) {
	o := idempotency.Options{Wait: time.Hour, LockTimeout: time.Hour}
	var free atomic.Bool
	var asked atomic.Int64
	pool := e.Open(e.DSN, holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
		if s.Name == "records.claim" && !free.Load() {
			asked.Add(1)
		}
	}}})
	s, err := idempotency.New(e.Ctx, pool.DB, o)
	e.Check(err)
	release := e.HoldKey("a")
	defer release()
	ended := make(chan error, 1)
	go func() {
		_, err := e.Do(s, conformance.Op("a"))
		ended <- err
	}()
	time.Sleep(200 * time.Millisecond) // time to ask again
	free.Store(true)
	release()
	e.Check(<-ended)
	if n := asked.Load(); n != 0 {
		e.Errorf("%d claims ended while the key was held", n)
	}
	e.WantOnce("a")
}

// wrong returns a different operation under the key of Op(key).
func wrong(key string) idempotency.Op {
	op := conformance.Op(key)
	op.Request = "wrong"
	return op
}

type heldLook struct{}

// claimantMeetsAWrongDuplicate makes a call with another request while the record's claimant is
// at work. The call reveals nothing about the claimant.
func claimantMeetsAWrongDuplicate[Tx any](t *testing.T, h conformance.Handle[Tx], engine dbtest.Engine) {
	looked, free := make(chan struct{}), make(chan struct{})
	e := newEnv(t, h, engine, holdfast.Options{Observers: []holdfast.Observer{func(ctx context.Context, s holdfast.Statement) {
		if s.Name == "records.look" && ctx.Value(heldLook{}) != nil {
			close(looked)
			<-free
		}
	}}})
	s := e.Store(idempotency.Options{})
	if _, err := e.Do(s, conformance.Op("a")); err != nil {
		e.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := idempotency.Do(context.WithValue(e.Ctx, heldLook{}, true), s, wrong("a"), func(context.Context, Tx) (string, error) {
			e.Error("the wrong duplicate was executed")
			return "", nil
		})
		ended <- err
	}()
	<-looked

	op := conformance.Op("a")
	op.Wait = holdfast.NoWait
	if r, err := e.Do(s, op); err != nil || r.Outcome != idempotency.Replayed {
		e.Errorf("the claimant, at once: %v, %v", r, err)
	}
	op.Wait = 50 * time.Millisecond
	if _, err := e.Do(s, op); !errors.Is(err, idempotency.ErrInProgress) {
		e.Errorf("the claimant, after a short wait: %v", err)
	}
	close(free)
	if r, err := e.Do(s, conformance.Op("a")); err != nil || r.Outcome != idempotency.Replayed {
		e.Errorf("the claimant: %v, %v", r, err)
	}
	if err := <-ended; !errors.Is(err, idempotency.ErrMismatch) {
		e.Errorf("the wrong duplicate: %v", err)
	}
	e.WantOnce("a")
}

// failedLeaderIsNoMismatch lets a leader fail. The key is then free, so a concurrent call with
// another request gets no mismatch.
func failedLeaderIsNoMismatch[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	started, free, boom := make(chan struct{}), make(chan struct{}), errors.New("boom")
	ended := make(chan error, 1)
	go func() {
		_, err := idempotency.Do(e.Ctx, s, wrong("a"), func(context.Context, Tx) (string, error) {
			close(started)
			<-free
			return "", boom
		})
		ended <- err
	}()
	<-started
	op := conformance.Op("a")
	op.Wait = 50 * time.Millisecond
	if _, err := e.Do(s, op); !errors.Is(err, idempotency.ErrInProgress) {
		e.Errorf("after a short wait: %v", err)
	}
	op.Wait = holdfast.NoWait
	if _, err := e.Do(s, op); !errors.Is(err, idempotency.ErrInProgress) {
		e.Errorf("at once: %v", err)
	}
	followed := make(chan error, 1)
	go func() {
		_, err := e.Do(s, conformance.Op("a"))
		followed <- err
	}()
	close(free)
	if err := <-ended; !errors.Is(err, boom) {
		e.Errorf("the leader: %v", err)
	}
	if err := <-followed; err != nil {
		e.Errorf("after the leader: %v", err)
	}
	e.WantOnce("a")
}
