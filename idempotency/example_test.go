package idempotency_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/exampletb"
	"github.com/holdfast-go/holdfast/sqllock"
)

// newShop opens a database with a table of refunds, and a store in it.
func newShop(t *exampletb.TB) (*holdfasttest.Kit[*sql.Tx], *idempotency.Store[*sql.Tx]) {
	kit := holdfasttest.SQLite(t)
	if _, err := kit.Pool.ExecContext(context.Background(), `CREATE TABLE refunds (order_no TEXT, cents INTEGER)`); err != nil {
		panic(err)
	}
	store, err := idempotency.New(context.Background(), kit.DB)
	if err != nil {
		panic(err)
	}
	return kit, store
}

func refundOf(order string, cents int) idempotency.Op {
	return idempotency.Op{Owner: "shop-7", Name: "refund", Key: idempotency.KeyOf(order, "1"), Request: cents}
}

// book returns the function of the examples: it writes through tx only.
func book(order string, cents int) func(context.Context, *sql.Tx) (string, error) {
	return func(ctx context.Context, tx *sql.Tx) (string, error) {
		_, err := tx.ExecContext(ctx, `INSERT INTO refunds VALUES (?, ?)`, order, cents)
		return fmt.Sprintf("refund of %d cents", cents), err
	}
}

func refund(ctx context.Context, store *idempotency.Store[*sql.Tx], order string, cents int) (idempotency.Result[string], error) {
	op := idempotency.Op{Owner: "shop-7", Name: "refund", Key: idempotency.KeyOf(order, "1"), Request: cents} // refund 1 of the order
	return idempotency.Do(ctx, store, op, func(ctx context.Context, tx *sql.Tx) (string, error) {
		_, err := tx.ExecContext(ctx, `INSERT INTO refunds VALUES (?, ?)`, order, cents)
		return "refunded", err
	})
}

// A duplicate gets the stored result. Another request with the same key is refused.
func ExampleDo() {
	t := exampletb.New()
	defer t.End()
	ctx := context.Background()
	_, store := newShop(t)

	for range 2 {
		res, err := refund(ctx, store, "42", 1250)
		fmt.Println(res.Outcome, res.Value, err)
	}
	_, err := refund(ctx, store, "42", 9999)
	fmt.Println(errors.Is(err, idempotency.ErrMismatch))
	// Output:
	// executed refunded <nil>
	// replayed refunded <nil>
	// true
}

// A page generates a key for each click. The second click is refused until a person confirms it.
func ExampleSimilar() {
	t := exampletb.New()
	defer t.End()
	ctx := context.Background()
	_, store := newShop(t)

	click := func(key, confirm string) error {
		op := idempotency.Op{Owner: "shop-7", Name: "refund", Key: key, Request: 1250}
		op.Similar = &idempotency.Similar{By: []string{"order 42", "1250"}, Window: 10 * time.Minute, Confirm: confirm}
		res, err := idempotency.Do(ctx, store, op, book("42", 1250))
		fmt.Println(key, res.Outcome, errors.Is(err, idempotency.ErrSimilar))
		return err
	}
	_ = click("d1f0", "")
	err := click("8a77", "")
	var similar *idempotency.SimilarError
	if errors.As(err, &similar) {
		_ = click("8a77", similar.Token)
	}
	// Output:
	// d1f0 executed false
	// 8a77 none true
	// 8a77 executed false
}

// The record commits together with the caller's own writes, or not at all.
func ExampleDoTx() {
	t := exampletb.New()
	defer t.End()
	ctx := context.Background()
	kit, store := newShop(t)

	tx, err := kit.Pool.BeginTx(ctx, nil)
	if err != nil {
		panic(err)
	}
	res, err := idempotency.DoTx(ctx, store, tx, refundOf("42", 1250), book("42", 1250))
	fmt.Println(res.Outcome, err)
	fmt.Println(tx.Rollback())

	res, err = idempotency.Do(ctx, store, refundOf("42", 1250), book("42", 1250))
	fmt.Println(res.Outcome, err)
	// Output:
	// executed <nil>
	// <nil>
	// executed <nil>
}

// A rejection is final: the writes are rolled back, and duplicates get the same answer.
func ExampleReject() {
	t := exampletb.New()
	defer t.End()
	ctx := context.Background()
	_, store := newShop(t)

	for range 2 {
		res, err := idempotency.Do(ctx, store, refundOf("42", 1250), func(context.Context, *sql.Tx) (string, error) {
			return "", idempotency.Reject("over_refund", "more than was paid")
		})
		var rejection *idempotency.Rejection
		if errors.As(err, &rejection) {
			fmt.Println(res.Outcome, rejection.Code)
		}
	}
	// Output:
	// executed over_refund
	// replayed over_refund
}

// A worker prepares under its lease. Then the guard, the record, the function and the result
// are one transaction.
func ExampleStore_WithLease() {
	t := exampletb.New()
	defer t.End()
	ctx := context.Background()
	kit, store := newShop(t)
	locks, err := sqllock.New(ctx, kit.DB, sqllock.Options{})
	if err != nil {
		panic(err)
	}
	defer func() { _ = locks.Close(ctx) }()

	op := refundOf("42", 1250)
	key, err := store.LeaseKey(op)
	if err != nil {
		panic(err)
	}
	lease, err := locks.For(op.Owner).Acquire(ctx, key)
	if err != nil {
		panic(err)
	}
	res, err := idempotency.Do(ctx, store.WithLease(locks, lease.Term()), op, book("42", 1250))
	fmt.Println(res.Outcome, err)
	fmt.Println(lease.Release(ctx))
	// Output:
	// executed <nil>
	// <nil>
}

// An erased result is gone, and the operation does not run again.
func ExampleStore_EraseScope() {
	t := exampletb.New()
	defer t.End()
	ctx := context.Background()
	_, store := newShop(t)

	if _, err := idempotency.Do(ctx, store, refundOf("42", 1250), book("42", 1250)); err != nil {
		panic(err)
	}
	erased, err := store.EraseScope(ctx, idempotency.Erasure{Owner: "shop-7", Actor: holdfast.Actor{By: "olga", Reason: "ticket 12"}})
	fmt.Println(erased, err)
	_, err = idempotency.Do(ctx, store, refundOf("42", 1250), book("42", 1250))
	fmt.Println(errors.Is(err, idempotency.ErrExpired))
	// Output:
	// 1 <nil>
	// true
}

// cancel ends the refund before it is made. It says false if that is too late.
func cancel(ctx context.Context, store *idempotency.Store[*sql.Tx], order string) (bool, error) {
	_, err := store.Void(ctx, idempotency.Op{Owner: "shop-7", Name: "refund", Key: idempotency.KeyOf(order, "1")}, "the customer keeps the goods")
	if errors.Is(err, idempotency.ErrTooLate) { // a *TooLateError says what became of it
		return false, nil
	}
	return err == nil, err
}

// A cancel arrives before its original, which is refused. Another one is too late.
func ExampleStore_Void() {
	t := exampletb.New()
	defer t.End()
	ctx := context.Background()
	_, store := newShop(t)

	fmt.Println(cancel(ctx, store, "42"))
	_, err := refund(ctx, store, "42", 1250)
	fmt.Println(err)
	if _, err := refund(ctx, store, "43", 1250); err != nil {
		panic(err)
	}
	fmt.Println(cancel(ctx, store, "43"))
	// Output:
	// true <nil>
	// rejected: voided: the customer keeps the goods
	// false <nil>
}
