package holdfasttest_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
)

func TestRefundSurvivesEveryFault(t *testing.T) {
	holdfasttest.EveryFault(t, holdfasttest.Handler{
		Setup: func(ctx context.Context, kit *holdfasttest.Kit[*sql.Tx]) error {
			_, err := kit.Pool.ExecContext(ctx, `CREATE TABLE refunds (merchant TEXT NOT NULL, order_no TEXT NOT NULL)`)
			return err
		},
		Call: func(ctx context.Context, kit *holdfasttest.Kit[*sql.Tx], key string) error {
			store, err := idempotency.New(ctx, kit.DB) // your program, on the kit's database
			if err != nil {
				return err
			}
			return refundOnce(ctx, store, kit.Owner, key) // your handler
		},
		Invariant: func(ctx context.Context, kit *holdfasttest.Kit[*sql.Tx]) error {
			var n int
			err := kit.Pool.QueryRowContext(ctx, `SELECT COUNT(*) FROM refunds`).Scan(&n)
			if err == nil && n != 1 {
				err = fmt.Errorf("%d refunds, want 1", n)
			}
			return err
		},
	})
}

func refundOnce(ctx context.Context, store *idempotency.Store[*sql.Tx], merchant, key string) error {
	op := idempotency.Op{Owner: merchant, Name: "refund", Key: key, Request: "order A"}
	_, err := idempotency.Do(ctx, store, op, func(ctx context.Context, tx *sql.Tx) (string, error) {
		_, err := tx.ExecContext(ctx, `INSERT INTO refunds (merchant, order_no) VALUES (?, 'A')`, merchant)
		return "refunded", err
	})
	return err
}
