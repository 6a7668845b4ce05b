package businessrow_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/businessrow"
	"github.com/holdfast-go/holdfast/internal/test/exampletb"
)

type refund struct {
	No    string `db:"refund_no"`
	Cents int64  `db:"cents"`
}

// open creates the table of refunds and opens it.
func open(t *exampletb.TB) (*sql.DB, *businessrow.Table[refund, *sql.Tx]) {
	kit := holdfasttest.SQLite(t, holdfast.Options{SingleOwner: true})
	ctx := context.Background()
	if _, err := kit.Pool.ExecContext(ctx, `CREATE TABLE refunds (refund_no TEXT NOT NULL UNIQUE, cents INTEGER NOT NULL)`); err != nil {
		panic(err)
	}
	refunds, err := businessrow.New[refund](ctx, kit.DB, holdfast.TableSpec{Table: "refunds", Key: []string{"refund_no"}},
		businessrow.Options{Compare: []string{"cents"}})
	if err != nil {
		panic(err)
	}
	return kit.Pool, refunds
}

// The row of the refund is both the lock and the record.
func ExampleTable_Do() {
	t := exampletb.New()
	defer t.End()
	ctx := context.Background()
	_, refunds := open(t)

	for range 2 {
		res, err := refunds.Do(ctx, refund{"42/1", 1250}, func(context.Context, *sql.Tx) error {
			fmt.Println("moving the money")
			return nil
		})
		fmt.Println(res.Outcome, res.Value.Cents, err)
	}
	_, err := refunds.Do(ctx, refund{"42/1", 9999}, func(context.Context, *sql.Tx) error { return nil })
	fmt.Println(errors.Is(err, idempotency.ErrMismatch))
	// Output:
	// moving the money
	// executed 1250 <nil>
	// replayed 1250 <nil>
	// true
}

// In a transaction of the caller, Executed means that the caller must do the work.
func ExampleTable_ClaimTx() {
	t := exampletb.New()
	defer t.End()
	ctx := context.Background()
	pool, refunds := open(t)

	for range 2 {
		tx, err := pool.BeginTx(ctx, nil)
		if err != nil {
			panic(err)
		}
		res, err := refunds.ClaimTx(ctx, tx, refund{"42/1", 1250})
		fmt.Println(res.Outcome, err)
		if err := tx.Commit(); err != nil {
			panic(err)
		}
	}
	// Output:
	// executed <nil>
	// replayed <nil>
}

// A settlement file gets one answer for each line.
func ExampleTable_ClaimAllTx() {
	t := exampletb.New()
	defer t.End()
	ctx := context.Background()
	pool, refunds := open(t)

	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		panic(err)
	}
	answers, err := refunds.ClaimAllTx(ctx, tx, []refund{{"42/1", 1250}, {"43/1", 300}, {"42/1", 1250}, {"43/1", 301}})
	if err != nil {
		panic(err)
	}
	for _, a := range answers {
		fmt.Println(a.Row.No, a.Outcome, errors.Is(a.Err, idempotency.ErrMismatch))
	}
	fmt.Println(tx.Commit())
	// Output:
	// 42/1 executed false
	// 43/1 executed false
	// 42/1 replayed false
	// 43/1 none true
	// <nil>
}
