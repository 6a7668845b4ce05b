package limits_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/internal/test/exampletb"
	"github.com/holdfast-go/holdfast/limits"
)

// An order of 100.00 was paid. Two refunds of 60.00 do not fit, and the first one is made once.
func Example() {
	t := exampletb.New()
	defer t.End()
	ctx := context.Background()
	refunds, err := limits.New(ctx, holdfasttest.SQLite(t).DB, "refunds")
	if err != nil {
		panic(err)
	}
	shop := refunds.For("shop-7")
	_, err = shop.Set(ctx, "order-42", 10000)
	fmt.Println(err)

	first := limits.Request{Key: "order-42", ID: "order-42/1", Amount: 6000}
	taken, err := shop.Take(ctx, first)
	fmt.Println(taken.Captured, taken.Replayed, err)
	taken, err = shop.Take(ctx, first) // a retry
	fmt.Println(taken.Captured, taken.Replayed, err)

	_, err = shop.Take(ctx, limits.Request{Key: "order-42", ID: "order-42/2", Amount: 6000})
	var exceeded *limits.ExceededError
	if errors.As(err, &exceeded) {
		fmt.Println("available:", exceeded.Available)
	}
	// Output:
	// <nil>
	// 6000 false <nil>
	// 6000 true <nil>
	// available: 4000
}

// An amount is reserved before a provider is asked, and captured in the transaction that books it.
func ExampleLimits_CaptureTx() {
	t := exampletb.New()
	defer t.End()
	ctx := context.Background()
	kit := holdfasttest.SQLite(t, holdfast.Options{SingleOwner: true})
	payouts, err := limits.New(ctx, kit.DB, "payouts")
	if err != nil {
		panic(err)
	}
	if _, err := payouts.Set(ctx, "account-1", 50000); err != nil {
		panic(err)
	}
	payout := limits.Request{Key: "account-1", ID: "payout-9", Amount: 30000} // no Timeout: it would free an amount that is paid
	reserved, err := payouts.Reserve(ctx, payout)
	fmt.Println(reserved.State, err)
	// ... the provider pays 290.00 of it, under a key made from payout.ID, unless reserved.State is limits.Captured
	payout.Amount = 29000
	err = kit.DB.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		entry, err := payouts.CaptureTx(ctx, tx, payout)
		if err != nil || entry.Replayed { // a retry after an unknown commit
			return err
		}
		return nil // ... the program's own statements on tx
	})
	fmt.Println(err)
	s, err := payouts.Get(ctx, "account-1")
	fmt.Println(s.Captured, s.Reserved, s.Available, err)
	// Output:
	// reserved <nil>
	// <nil>
	// 29000 0 21000 <nil>
}

// The limit is a row of the program's own: what was paid for an order, and what was refunded.
func ExampleTable() {
	t := exampletb.New()
	defer t.End()
	ctx := context.Background()
	kit := holdfasttest.SQLite(t, holdfast.Options{SingleOwner: true})
	for _, statement := range []string{
		`CREATE TABLE orders (order_no TEXT NOT NULL PRIMARY KEY, paid INTEGER NOT NULL, refunded INTEGER NOT NULL, CHECK (refunded BETWEEN 0 AND paid))`,
		`INSERT INTO orders (order_no, paid, refunded) VALUES ('42', 10000, 0)`,
	} {
		if _, err := kit.Pool.ExecContext(ctx, statement); err != nil {
			panic(err)
		}
	}
	refunds, err := limits.New(ctx, kit.DB, "refunds", limits.Options{
		Table: &limits.Table{TableSpec: holdfast.TableSpec{Table: "orders", Key: []string{"order_no"}}, Limit: "paid", Captured: "refunded"},
	})
	if err != nil {
		panic(err)
	}
	_, err = refunds.Take(ctx, limits.Request{Key: "42", ID: "42/1", Amount: 6000})
	fmt.Println(err)
	_, err = refunds.Take(ctx, limits.Request{Key: "42", ID: "42/2", Amount: 6000})
	fmt.Println(errors.Is(err, limits.ErrExceeded))
	// Output:
	// <nil>
	// true
}
