package operations

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// similarNothingHappened checks that an operation that had no effect does not refuse another one.
func similarNothingHappened[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	boom := errors.New("boom")
	fail := func(ctx context.Context, tx Tx) (string, error) {
		return "", errors.Join(boom, e.Effect(ctx, tx, "failed"))
	}
	reject := func(ctx context.Context, tx Tx) (string, error) {
		return "", errors.Join(e.Effect(ctx, tx, "rejected"), idempotency.Reject("no", "never"))
	}
	var rej *idempotency.Rejection
	if _, err := idempotency.Do(e.Ctx, s, alike("failed", "1"), fail); !errors.Is(err, boom) {
		e.Error(err)
	}
	if _, err := idempotency.Do(e.Ctx, s, alike("rejected", "1"), reject); !errors.As(err, &rej) {
		e.Error(err)
	}
	tx := e.BeginTx(sql.LevelDefault)
	if _, err := idempotency.DoTx(e.Ctx, s, tx, alike("rejected by a caller", "1"), reject); !errors.As(err, &rej) {
		e.Error(err)
	}
	e.EndTx(tx, true)
	tx = e.BeginTx(sql.LevelDefault)
	if _, err := e.DoTx(s, tx, alike("rolled back", "1")); err != nil {
		e.Error(err)
	}
	e.EndTx(tx, false)
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_similar`); n != 0 {
		e.Errorf("%d rows of nothing", n)
	}
	e.executes(s, alike("a", "1"))
	// The row of one that was executed stays, also if a confirmed one fails.
	_, err := e.Do(s, alike("b", "1"))
	token := e.similar(err, "a").Token
	op := alike("rejected too", "1")
	op.Similar.Confirm = token
	if _, err := idempotency.Do(e.Ctx, s, op, reject); !errors.As(err, &rej) {
		e.Error(err)
	}
	_, err = e.Do(s, alike("c", "1"))
	if l := e.similar(err, "a"); l.Token != token {
		e.Error("a rejection has used the token up")
	}
	// A rejection is replayed, and not refused.
	if r, err := e.Do(e.Store(idempotency.Options{}), alike("rejected", "1")); !errors.As(err, &rej) || r.Outcome != idempotency.Replayed {
		e.Errorf("the rejection: %v, %v", r, err)
	}
}

// similarInProgress checks that a call waits for one with another key whose transaction is open.
func similarInProgress[Tx any](e *env[Tx]) {
	started, free, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := idempotency.Do(e.Ctx, e.Store(idempotency.Options{}), alike("a", "1"), func(ctx context.Context, tx Tx) (string, error) {
			close(started)
			<-free
			return "", e.Effect(ctx, tx, "a")
		})
		ended <- err
	}()
	<-started
	s := e.Store(idempotency.Options{Wait: time.Minute})
	op := alike("b", "1")
	op.Wait = holdfast.NoWait
	if _, err := e.Do(s, op); !errors.Is(err, idempotency.ErrInProgress) {
		e.Errorf("without a wait: %v", err)
	}
	op.Wait = time.Millisecond
	if _, err := e.Do(s, op); !errors.Is(err, idempotency.ErrInProgress) {
		e.Errorf("after a wait: %v", err)
	}
	tx := e.BeginTx(sql.LevelDefault)
	if _, err := e.DoTx(s, tx, op); !errors.Is(err, idempotency.ErrInProgress) {
		e.Errorf("in a caller's transaction: %v", err)
	}
	e.WantRolledBack(tx)
	waited := make(chan error, 1)
	go func() {
		_, err := e.Do(s, alike("b", "1"))
		waited <- err
	}()
	close(free)
	e.Check(<-ended)
	e.similar(<-waited, "a")
	if n := e.Effects("b"); n != 0 {
		e.Errorf("%d effects", n)
	}
}

// similarQueue holds a row while many calls of one process with fresh keys wait for it: they hold no
// connection.
func similarQueue[Tx any](e *env[Tx]) {
	const clicks = 30
	var looks atomic.Int32
	pool := e.Handle.Open(e, e.DSN, holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
		if s.Name == "records.look" {
			looks.Add(1)
		}
	}}})
	s := e.StoreOn(pool.DB, idempotency.Options{Wait: dbtest.Hang})
	started, free, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := idempotency.Do(e.Ctx, s, alike("a", "1"), func(ctx context.Context, tx Tx) (string, error) {
			close(started)
			<-free
			return "", e.Effect(ctx, tx, "a")
		})
		ended <- err
	}()
	<-started
	waiting := make(chan error, clicks)
	for range clicks {
		go func() {
			_, err := idempotency.Do(e.Ctx, s, alike(uuid.NewString(), "1"), func(ctx context.Context, tx Tx) (string, error) {
				return "", e.Effect(ctx, tx, "a")
			})
			waiting <- err
		}()
	}
	e.Eventually("all of them have read, and one connection is in use", func() bool { return looks.Load() > clicks && pool.InUse() == 1 })
	close(free)
	e.Check(<-ended)
	for range clicks {
		e.similar(<-waiting, "a")
	}
	e.WantOnce("a")
}

// similarStorm sends a fresh random key for each click, to several processes at once, at every level.
// Without the guard, each click has its effect.
func similarStorm[Tx any](e *env[Tx]) {
	const clicks = 6
	for _, level := range append(e.Levels(), sql.LevelDefault) {
		order := uuid.NewString()
		storm := func(guarded bool) (effects int) {
			var wg sync.WaitGroup
			for i := range clicks {
				s := e.Store(idempotency.Options{Isolation: level, Wait: time.Minute})
				wg.Go(func() {
					op := alike(uuid.NewString(), order, "100")
					if !guarded {
						op.Similar = nil
					}
					if err := e.click(s, level, op, order, i%2 == 0); err != nil && (!guarded || !errors.Is(err, idempotency.ErrSimilar)) {
						e.Errorf("%v: %v", level, err)
					}
				})
			}
			wg.Wait()
			return e.Effects(order)
		}
		if n := storm(true); n != 1 {
			e.Errorf("%v: %d refunds of one order with the guard", level, n)
		}
		e.Must(`DELETE FROM effects`)
		if n := storm(false); n != clicks {
			e.Errorf("%v: the control has %d refunds of %d clicks, so the storm shows nothing", level, n, clicks)
		}
		e.Must(`DELETE FROM effects`)
	}
}

// click refunds an order, in the transaction of Do or in another one.
func (e *env[Tx]) click(s *idempotency.Store[Tx], level sql.IsolationLevel, op idempotency.Op, order string, own bool) error {
	refund := func(ctx context.Context, tx Tx) (string, error) { return "", e.Effect(ctx, tx, order) }
	for e.Ctx.Err() == nil {
		var err error
		if own {
			_, err = idempotency.Do(e.Ctx, s, op, refund)
		} else {
			tx, begun := e.Begin(e.Ctx, level)
			if begun != nil {
				return begun
			}
			if _, err = idempotency.DoTx(e.Ctx, s, tx, op, refund); err == nil {
				err = e.End(e.Ctx, tx, true)
			}
			if err != nil {
				_ = e.End(e.Ctx, tx, false) // rolls back where Holdfast has not done so
			}
		}
		if !e.DB.Retryable(err) && !errors.Is(err, holdfast.ErrRetry) && !errors.Is(err, idempotency.ErrInProgress) {
			return err
		}
	}
	return context.Cause(e.Ctx)
}
