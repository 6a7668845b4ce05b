package limits

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/limits"
)

// takenWithinAnOperation takes an amount in the transaction of Do. An amount that does not fit is
// rejected for good, and nothing that the function wrote is committed.
func takenWithinAnOperation[Tx any](e *env[Tx]) {
	l, store := e.open(), e.Store(idempotency.Options{})
	e.set(l, "a", 100)
	refund := func(key string) (idempotency.Result[string], error) {
		return idempotency.Do(e.Ctx, store, conformance.Op(key), func(ctx context.Context, tx Tx) (string, error) {
			if err := e.Effect(ctx, tx, key); err != nil {
				return "", err
			}
			_, err := l.TakeTx(ctx, tx, ask("a", key, 60))
			if errors.Is(err, limits.ErrExceeded) {
				return "", idempotency.Reject("over_refund", err.Error())
			}
			return "refunded", err
		})
	}
	for _, want := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
		if got, err := refund("first"); err != nil || got.Outcome != want || got.Value != "refunded" {
			e.Errorf("%+v, %v", got, err)
		}
		var rejection *idempotency.Rejection
		if got, err := refund("second"); !errors.As(err, &rejection) || rejection.Code != "over_refund" || got.Outcome != want {
			e.Errorf("%+v, %v", got, err)
		}
	}
	e.WantOnce("first")
	if n := e.Effects("second"); n != 0 {
		e.Errorf("%d effects of a refund that was rejected", n)
	}
	e.wantStatus(l, "a", 100, 0, 60)
}

// takenUnderAForeignKey takes from the program's own row, to which the rows of the refunds refer by a foreign key.
// Where TakeTx comes first, the function of each operation runs once, however many there are at once. Behind the
// INSERT, whose check of the key has locked the row in share mode, InnoDB ends one of two.
func takenUnderAForeignKey[Tx any](e *env[Tx]) {
	if e.Engine == dbtest.TiDB || e.Engine == dbtest.Vitess {
		return // no foreign keys, or none in a sharded keyspace
	}
	const calls = 10
	// A call that waits for longer than LockTimeout runs again, however slow the machine is.
	l, store := e.orders().For("a"), e.Store(idempotency.Options{Wait: dbtest.Hang, LockTimeout: dbtest.Hang})
	e.order("a", "1", 1000)
	e.Must(`CREATE TABLE refund_rows (shop ` + e.Text() + ` NOT NULL, order_no ` + e.Text() + ` NOT NULL, no ` + e.Text() + ` NOT NULL,
 PRIMARY KEY (shop, order_no, no), FOREIGN KEY (shop, order_no) REFERENCES orders (shop, order_no))`)
	insert := func(ctx context.Context, tx Tx, no string) error {
		_, err := e.Exec(ctx, tx, `INSERT INTO refund_rows (shop, order_no, no) VALUES ('a', '1', $1)`, no)
		return err
	}
	var runs atomic.Int64
	results := make(chan error, calls)
	for i := range calls {
		go func() {
			no := strconv.Itoa(i)
			_, err := idempotency.Do(e.Ctx, store, conformance.Op(no), func(ctx context.Context, tx Tx) (string, error) {
				runs.Add(1)
				if _, err := l.TakeTx(ctx, tx, ask("1", no, 10)); err != nil {
					return "", err
				}
				return no, insert(ctx, tx, no)
			})
			results <- err
		}()
	}
	for range calls {
		e.Check(<-results)
	}
	if n := runs.Load(); n != calls {
		e.Errorf("the function of %d operations ran %d times", calls, n)
	}
	if n := e.Int(`SELECT COUNT(*) FROM refund_rows`); n != calls {
		e.Errorf("%d refunds, want %d", n, calls)
	}
	if e.Engine == dbtest.SQLite {
		return // one writer at a time
	}
	e.takenLate(l, insert)
}

// takenLate has two transactions that insert before either takes.
func (e *env[Tx]) takenLate(l *limits.Limits[Tx], insert func(ctx context.Context, tx Tx, no string) error) {
	e.Helper()
	var inserted sync.WaitGroup
	inserted.Add(2)
	results := make(chan error, 2)
	for _, no := range []string{"x", "y"} {
		tx, err := e.Begin(e.Ctx, sql.LevelReadCommitted)
		e.Check(err)
		go func() {
			err := insert(e.Ctx, tx, no)
			inserted.Done()
			inserted.Wait()
			if err == nil {
				_, err = l.TakeTx(e.Ctx, tx, ask("1", no, 10))
			}
			if err == nil {
				err = e.End(e.Ctx, tx, true)
			} else {
				_ = e.End(e.Ctx, tx, false) // it may have ended
			}
			results <- err
		}()
	}
	refused := 0
	for range 2 {
		if err := <-results; errors.Is(err, holdfast.ErrRetry) {
			refused++
		} else {
			e.Check(err)
		}
	}
	if e.InnoDB() != (refused == 1) || refused > 1 {
		e.Errorf("%d of two transactions that take late were refused", refused)
	}
}
