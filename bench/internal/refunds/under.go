package refunds

import (
	"context"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/businessrow"
	"github.com/holdfast-go/holdfast/internal/refund"
)

type request struct{ Order, Cents int64 }

func op(order int64, key string) idempotency.Op {
	return idempotency.Op{Name: "refund", Key: key, Request: request{order, refund.Cents}}
}

func store[Tx any](ctx context.Context, db *holdfast.DB[Tx]) (*idempotency.Store[Tx], error) {
	return idempotency.New(ctx, db, idempotency.Options{Namespace: "bench"})
}

// under runs steps under Do.
func under[Tx any](ctx context.Context, db *holdfast.DB[Tx], steps func(ctx context.Context, tx Tx, order int64, key string) error) (Do, error) {
	s, err := store(ctx, db)
	return func(ctx context.Context, order int64, key string) error {
		_, err := idempotency.Do(ctx, s, op(order, key), func(ctx context.Context, tx Tx) (string, error) { return key, steps(ctx, tx, order, key) })
		return err
	}, err
}

// underTx runs steps under DoTx, in a transaction of the program's own.
func underTx[Tx any](ctx context.Context, db *holdfast.DB[Tx], within func(ctx context.Context, run func(tx Tx) error) error, steps func(ctx context.Context, tx Tx, order int64, key string) error) (Do, error) {
	s, err := store(ctx, db)
	return func(ctx context.Context, order int64, key string) error {
		return within(ctx, func(tx Tx) error {
			_, err := idempotency.DoTx(ctx, s, tx, op(order, key), func(ctx context.Context, tx Tx) (string, error) { return key, steps(ctx, tx, order, key) })
			return err
		})
	}, err
}

// row is a refund.
type row struct {
	No    string `db:"refund_no"`
	Order int64  `db:"order_id"`
	Cents int64  `db:"cents"`
}

// underTable claims the refund's own row, so that the steps insert none.
func underTable[Tx any](ctx context.Context, db *holdfast.DB[Tx], money func(ctx context.Context, tx Tx, order int64) error) (Do, error) {
	refunds, err := businessrow.New[row](ctx, db, holdfast.TableSpec{Table: "refunds", Key: []string{"refund_no"}},
		businessrow.Options{Compare: []string{"order_id", "cents"}})
	return func(ctx context.Context, order int64, key string) error {
		_, err := refunds.Do(ctx, row{key, order, refund.Cents}, func(ctx context.Context, tx Tx) error { return money(ctx, tx, order) })
		return err
	}, err
}
