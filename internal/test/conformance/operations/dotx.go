package operations

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// DoTx is the suite of Do in the caller's transaction.
func DoTx[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	for name, f := range map[string]func(*env[Tx]){
		"TxLivesWithTheCaller":       txLivesWithTheCaller[Tx],
		"TxRejectionKeepsTheVerdict": txRejectionKeepsTheVerdict[Tx],
		"TxErrorRollsBack":           txErrorRollsBack[Tx],
		"TxPanicRollsBack":           txPanicRollsBack[Tx],
		"TxWaitsAndIsBounded":        txWaitsAndIsBounded[Tx],
		"TxOldSnapshot":              txOldSnapshot[Tx],
		"TxKeyExpires":               txKeyExpires[Tx],
		"TxHasEnded":                 txHasEnded[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, f)
		})
	}
}

func txLivesWithTheCaller[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	for _, commit := range []bool{false, true} {
		tx := e.BeginTx(sql.LevelDefault)
		if err := e.Effect(e.Ctx, tx, "caller"); err != nil {
			e.Error(err)
		}
		for _, outcome := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
			if r, err := e.DoTx(s, tx, conformance.Op("a")); err != nil || r.Outcome != outcome || r.Value != "done" {
				e.Errorf("%v, %v, want %v", r, err, outcome)
			}
		}
		e.EndTx(tx, commit)
	}
	e.WantOnce("a")
	e.WantOnce("caller")
	tx := e.BeginTx(sql.LevelDefault)
	op := conformance.Op("a")
	op.Request = "another"
	if _, err := e.DoTx(s, tx, op); !errors.Is(err, idempotency.ErrMismatch) {
		e.Errorf("got %v, want mismatch", err)
	}
	if r, err := e.DoTx(s, tx, conformance.Op("a")); err != nil || r.Outcome != idempotency.Replayed {
		e.Errorf("after a mismatch the transaction goes on: %v, %v", r, err)
	}
	e.EndTx(tx, true)
	if r, err := e.Do(s, conformance.Op("a")); err != nil || r.Outcome != idempotency.Replayed {
		e.Errorf("Do after DoTx: %v, %v", r, err)
	}
	var none Tx
	if _, err := e.DoTx(s, none, conformance.Op("a")); !errors.Is(err, holdfast.ErrNoTx) {
		e.Errorf("a nil transaction: %v", err)
	}
}

func txRejectionKeepsTheVerdict[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	reject := func(ctx context.Context, tx Tx) (string, error) {
		return "", errors.Join(e.Effect(ctx, tx, "a"), idempotency.Reject("no", "never"))
	}
	for _, outcome := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
		tx := e.BeginTx(sql.LevelDefault)
		r, err := idempotency.DoTx(e.Ctx, s, tx, conformance.Op("a"), reject)
		var rej *idempotency.Rejection
		if !errors.As(err, &rej) || r.Outcome != outcome {
			e.Errorf("%v, %v", r, err)
		}
		if err := e.Effect(e.Ctx, tx, "caller "+outcome.String()); err != nil {
			e.Errorf("the transaction goes on after a rejection: %v", err)
		}
		e.EndTx(tx, true)
		e.WantOnce("caller " + outcome.String())
	}
	if n := e.Effects("a"); n != 0 {
		e.Errorf("the rejected function left %d effects", n)
	}
}

func txErrorRollsBack[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	tx := e.BeginTx(sql.LevelDefault)
	boom := errors.New("boom")
	_, err := idempotency.DoTx(e.Ctx, s, tx, conformance.Op("a"), func(ctx context.Context, tx Tx) (string, error) {
		return "", errors.Join(boom, e.Effect(ctx, tx, "a"))
	})
	if !errors.Is(err, boom) {
		e.Errorf("got %v", err)
	}
	e.WantRolledBack(tx)
	if n := e.Effects("a") + e.Int(`SELECT COUNT(*) FROM holdfast_records`); n != 0 {
		e.Errorf("%d rows were left behind", n)
	}
}

// txPanicRollsBack has a function panic, and one end its goroutine, after their effects: a caller that recovers and
// commits would commit an effect without its record.
func txPanicRollsBack[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	for key, end := range map[string]func(){"panic": func() { panic("boom") }, "goexit": runtime.Goexit} {
		tx := e.BeginTx(sql.LevelDefault)
		var wg sync.WaitGroup
		wg.Go(func() {
			defer func() { _ = recover() }()
			_, _ = idempotency.DoTx(e.Ctx, s, tx, conformance.Op(key), func(ctx context.Context, tx Tx) (string, error) {
				e.Check(e.Effect(ctx, tx, key))
				end()
				return "", nil
			})
		})
		wg.Wait()
		e.WantRolledBack(tx)
		if n := e.Effects(key) + e.Int(`SELECT COUNT(*) FROM holdfast_records`); n != 0 {
			e.Errorf("%s: %d rows were left behind", key, n)
		}
	}
}

func txWaitsAndIsBounded[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	release := e.HoldKey("a")
	defer release()
	op := conformance.Op("a")
	op.Wait = holdfast.NoWait
	tx := e.BeginTx(sql.LevelDefault)
	start := time.Now()
	if _, err := e.DoTx(s, tx, op); !errors.Is(err, idempotency.ErrInProgress) {
		e.Errorf("got %v, want in progress", err)
	}
	e.Logf("no wait: %v", time.Since(start))
	e.WantRolledBack(tx)

	op.Wait = 300 * time.Millisecond
	tx = e.BeginTx(sql.LevelDefault)
	var busy *idempotency.InProgressError
	if _, err := e.DoTx(s, tx, op); !errors.As(err, &busy) || busy.Waited <= 0 {
		e.Errorf("got %v, want in progress, after a wait", err)
	}
	e.WantRolledBack(tx)

	op.Wait = 20 * time.Second
	go func() {
		time.Sleep(1500 * time.Millisecond) // longer than one lock wait of MySQL
		release()
	}()
	waits := func() (idempotency.Result[string], error) {
		tx = e.BeginTx(sql.LevelDefault)
		if err := e.Effect(e.Ctx, tx, "caller"); err != nil { // the end of a lock wait may end all that was before it
			e.Error(err)
		}
		return e.DoTx(s, tx, op)
	}
	r, err := waits()
	if errors.Is(err, idempotency.ErrInProgress) && e.Engine == dbtest.MySQL && e.Int(`SELECT @@innodb_rollback_on_timeout`) == 1 {
		e.WantRolledBack(tx) // the first wait has found that out
		r, err = waits()
	}
	if err != nil || r.Value != "held" {
		e.Errorf("%v, %v", r, err)
	}
	e.EndTx(tx, true)
	release()
	e.WantOnce("a")
	e.WantOnce("caller")
}

// txOldSnapshot uses a caller's snapshot that is older than the duplicate's commit. DoTx replays
// with a locking read or returns an error that asks for another run; it never executes twice.
func txOldSnapshot[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	for _, level := range e.Levels() {
		key := level.String()
		for attempt := 1; ; attempt++ {
			tx := e.BeginTx(level)
			q, _ := access.Of(e.DB).Join(tx)
			rows, err := q.Query(e.Ctx, `SELECT who FROM effects`) // takes the snapshot
			if err != nil {
				e.Fatal(err)
			}
			for rows.Next() {
			}
			_ = rows.Close()
			if attempt == 1 {
				done := make(chan error, 1)
				go func() {
					_, err := e.Do(e.Store(idempotency.Options{}), conformance.Op(key))
					done <- err
				}()
				// Under SERIALIZABLE, InnoDB's reads lock, so the duplicate waits there.
				select {
				case err := <-done:
					if err != nil {
						e.Error(err)
					}
				case <-time.After(500 * time.Millisecond):
					e.EndTx(tx, false)
					if err := <-done; err != nil {
						e.Error(err)
					}
					continue
				}
			}
			r, err := e.DoTx(s, tx, conformance.Op(key))
			if errors.Is(err, holdfast.ErrRetry) && attempt < 5 {
				e.Logf("%v: %v", level, err)
				e.WantRolledBack(tx)
				continue
			}
			if err != nil || r.Outcome != idempotency.Replayed {
				e.Errorf("%v: %v, %v", level, r, err)
			}
			e.EndTx(tx, true)
			break
		}
		e.WantOnce(key)
	}
}

func txKeyExpires[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{ResultTTL: 50 * time.Millisecond, KeyTTL: 100 * time.Millisecond})
	for range 2 {
		e.Eventually("the key is free", func() bool {
			tx := e.BeginTx(sql.LevelDefault)
			r, err := e.DoTx(s, tx, conformance.Op("a"))
			if err != nil && !errors.Is(err, idempotency.ErrExpired) {
				e.Fatal(err)
			}
			e.EndTx(tx, true)
			return r.Outcome == idempotency.Executed
		})
	}
	if n := e.Effects("a"); n != 2 {
		e.Errorf("%d effects, want one for each life of the key", n)
	}
}

// txHasEnded rolls back the caller's transaction behind its back; the caller then continues.
// DoTx refuses where the engine would commit each later statement alone.
func txHasEnded[Tx any](e *env[Tx]) {
	if e.Engine == dbtest.Postgres {
		return // it says that no transaction is open, and what follows it commits alone: so does any statement
	}
	tx := e.BeginTx(sql.LevelDefault)
	if _, err := e.Exec(e.Ctx, tx, `ROLLBACK`); err != nil {
		e.Fatal(err)
	}
	if r, err := e.DoTx(e.Store(idempotency.Options{}), tx, conformance.Op("a")); !errors.Is(err, holdfast.ErrTxLost) {
		e.Errorf("%v, %v", r, err)
	}
	tx = e.BeginTx(sql.LevelDefault)
	if _, err := e.Exec(e.Ctx, tx, `ROLLBACK`); err != nil {
		e.Fatal(err)
	}
	if r, err := e.Refunds().ClaimTx(e.Ctx, tx, conformance.Refund{No: "a"}); !errors.Is(err, holdfast.ErrTxLost) {
		e.Errorf("%v, %v", r, err)
	}
	if n := e.Effects("a") + e.Int(`SELECT COUNT(*) FROM holdfast_records`) + e.Int(`SELECT COUNT(*) FROM refunds`); n != 0 {
		e.Errorf("%d rows stand", n)
	}
}
