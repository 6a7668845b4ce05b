package operations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// Nested is the suite of nested and concurrent calls.
func Nested[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	for name, f := range map[string]func(*env[Tx]){
		"OuterRejectionUndoesTheInner": outerRejectionUndoesTheInner[Tx],
		"FunctionsErrorsAreItsOwn":     functionsErrorsAreItsOwn[Tx],
		"ResultWithoutAWayBack":        resultWithoutAWayBack[Tx],
		"NoWaitOfFinishedKeys":         noWaitOfFinishedKeys[Tx],
		"ExpiredKeyInFlight":           expiredKeyInFlight[Tx],
		"ReplaysDoNotBlock":            replaysDoNotBlock[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, f)
		})
	}
}

// outerRejectionUndoesTheInner rejects in an outer DoTx after an inner DoTx. The inner call has
// a separate savepoint, which the outer rejection must not use as its own. Both calls restore
// the session settings.
func outerRejectionUndoesTheInner[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	tx := e.BeginTx(sql.LevelDefault)
	_, err := idempotency.DoTx(e.Ctx, s, tx, conformance.Op("outer"), func(ctx context.Context, tx Tx) (string, error) {
		if err := e.Effect(ctx, tx, "outer"); err != nil {
			return "", err
		}
		if _, err := idempotency.DoTx(ctx, s, tx, conformance.Op("inner"), func(ctx context.Context, tx Tx) (string, error) {
			return "", e.Effect(ctx, tx, "inner")
		}); err != nil {
			return "", err
		}
		return "", idempotency.Reject("no", "never")
	})
	var rej *idempotency.Rejection
	if !errors.As(err, &rej) {
		e.Errorf("got %v", err)
	}
	e.EndTx(tx, true)
	if n := e.Effects("outer") + e.Effects("inner"); n != 0 {
		e.Errorf("%d effects of the rejected call stand", n)
	}

	before := e.lockWait()
	_, err = idempotency.Do(e.Ctx, s, conformance.Op("do"), func(ctx context.Context, tx Tx) (string, error) {
		r, err := idempotency.DoTx(ctx, s, tx, conformance.Op("in do"), func(ctx context.Context, tx Tx) (string, error) {
			return "done", e.Effect(ctx, tx, "in do")
		})
		return r.Value, err
	})
	if err != nil {
		e.Error(err)
	}
	e.WantOnce("in do")
	if after := e.lockWait(); after != before {
		e.Errorf("the session's lock wait is %s, it was %s", after, before)
	}
}

// lockWait returns the lock wait setting of the next connection from the pool.
func (e *env[Tx]) lockWait() string {
	query := `SELECT 'none'`
	if e.InnoDB() {
		query = `SELECT @@innodb_lock_wait_timeout`
	}
	conn, err := access.Of(e.DB).Acquire(e.Ctx)
	if err != nil {
		e.Fatal(err)
	}
	defer conn.Release(false)
	rows, err := conn.Query(e.Ctx, query)
	if err != nil {
		e.Fatal(err)
	}
	defer rows.Close()
	var text string
	if rows.Next() {
		err = rows.Scan(&text)
	}
	if err := errors.Join(err, rows.Err()); err != nil {
		e.Fatal(err)
	}
	return text
}

// functionsErrorsAreItsOwn returns from the function an error about another commit or claim. The
// caller gets that error; Do neither resolves it nor waits for it.
func functionsErrorsAreItsOwn[Tx any](e *env[Tx]) {
	for i, inner := range []error{
		&holdfast.UnknownError{Err: errors.New("elsewhere")}, idempotency.ErrInProgress, &holdfast.TxLostError{},
		&idempotency.UnfinishedError{}, context.DeadlineExceeded,
	} {
		runs := 0
		_, err := idempotency.Do(e.Ctx, e.Store(idempotency.Options{}), conformance.Op(fmt.Sprint(i)), func(context.Context, Tx) (string, error) {
			runs++
			return "", fmt.Errorf("booking: %w", inner)
		})
		if within := (*idempotency.InnerError)(nil); errors.As(err, &within) {
			err = within.Err
		}
		if !errors.Is(err, inner) || runs != 1 {
			e.Errorf("%v: got %v after %d runs", inner, err, runs)
		}
	}
}

type oneWay struct{}

func (oneWay) MarshalJSON() ([]byte, error) { return []byte(`{}`), nil }

func (*oneWay) UnmarshalJSON([]byte) error { return errors.New("no way back") }

// resultWithoutAWayBack checks that Do refuses a result it cannot decode before the commit, not
// after it.
func resultWithoutAWayBack[Tx any](e *env[Tx]) {
	_, err := idempotency.Do(e.Ctx, e.Store(idempotency.Options{}), conformance.Op("a"), func(ctx context.Context, tx Tx) (oneWay, error) {
		return oneWay{}, e.Effect(ctx, tx, "a")
	})
	var stored *idempotency.ResultError
	if !errors.Is(err, holdfast.ErrInvalid) || errors.As(err, &stored) || e.Effects("a") != 0 {
		e.Errorf("%v, and %d effects", err, e.Effects("a"))
	}
}

// noWaitOfFinishedKeys checks that two concurrent replays do not report an operation in
// progress.
func noWaitOfFinishedKeys[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	op := conformance.Op("a")
	op.Wait = holdfast.NoWait
	if _, err := e.Do(s, op); err != nil {
		e.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			if r, err := e.Do(s, op); err != nil || r.Outcome != idempotency.Replayed {
				e.Errorf("%v, %v", r, err)
			}
		})
	}
	wg.Wait()
	e.WantOnce("a")
}

// expiredKeyInFlight executes an expired key again. Another call for that key waits for a
// bounded time and does not execute concurrently.
func expiredKeyInFlight[Tx any](e *env[Tx]) {
	o := idempotency.Options{ResultTTL: 50 * time.Millisecond, KeyTTL: 50 * time.Millisecond}
	if _, err := e.Do(e.Store(o), conformance.Op("a")); err != nil {
		e.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // twice its life
	release := e.HoldKey("a")
	defer release()
	op := conformance.Op("a")
	op.Wait = holdfast.NoWait
	start := time.Now()
	if _, err := e.Do(e.Store(o), op); !errors.Is(err, idempotency.ErrInProgress) {
		e.Errorf("no wait: %v", err)
	}
	op.Wait = 200 * time.Millisecond
	if _, err := e.Do(e.Store(o), op); !errors.Is(err, idempotency.ErrInProgress) {
		e.Errorf("a short wait: %v", err)
	}
	tx := e.BeginTx(sql.LevelDefault)
	if _, err := e.DoTx(e.Store(o), tx, op); !errors.Is(err, idempotency.ErrInProgress) {
		e.Errorf("in a transaction: %v", err)
	}
	e.WantRolledBack(tx)
	if d := time.Since(start); d > dbtest.Slack {
		e.Errorf("it took %v", d)
	}
	release()
	if n := e.Effects("a"); n != 2 {
		e.Errorf("%d effects, want one for each life of the key", n)
	}
}

// replaysDoNotBlock keeps open a caller's transaction that replays. It delays another caller's
// replay for a bounded time at most.
func replaysDoNotBlock[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	if _, err := e.Do(s, conformance.Op("a")); err != nil {
		e.Fatal(err)
	}
	if e.DB.Capabilities().RowLocks {
		tx := e.BeginTx(sql.LevelDefault)
		if r, err := e.DoTx(s, tx, conformance.Op("a")); err != nil || r.Outcome != idempotency.Replayed {
			e.Errorf("%v, %v", r, err)
		}
		defer e.EndTx(tx, true)
	}
	if r, err := e.Do(e.Store(idempotency.Options{}), conformance.Op("a")); err != nil || r.Outcome != idempotency.Replayed {
		e.Errorf("%v, %v", r, err)
	}
	e.WantOnce("a")
}
