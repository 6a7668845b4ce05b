package holdfasttest_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
)

type sqlKit = holdfasttest.Kit[*sql.Tx]

// plain books a refund in its transaction.
func plain(ctx context.Context, kit *sqlKit, key string) error {
	store, err := idempotency.New(ctx, kit.DB)
	if err != nil {
		return err
	}
	op := idempotency.Op{Owner: kit.Owner, Name: "refund", Key: key, Request: "A"}
	_, err = idempotency.Do(ctx, store, op, func(ctx context.Context, tx *sql.Tx) (string, error) {
		_, err := tx.ExecContext(ctx, `INSERT INTO refunds (order_no) VALUES ('A')`)
		return "refunded", err
	})
	return err
}

func one(table string) func(context.Context, *sqlKit) error {
	return func(ctx context.Context, kit *sqlKit) error {
		var n int
		if err := kit.Pool.QueryRowContext(ctx, `SELECT COUNT(*) FROM `+table).Scan(&n); err != nil || n != 1 {
			return fmt.Errorf("%d rows in %s: %v", n, table, err)
		}
		return nil
	}
}

func TestPlain(t *testing.T) {
	n := holdfasttest.EveryFault(t, holdfasttest.Handler{
		Setup: func(ctx context.Context, kit *sqlKit) error {
			_, err := kit.Pool.ExecContext(ctx, `CREATE TABLE refunds (order_no TEXT)`)
			return err
		},
		Call:      plain,
		Invariant: one("refunds"),
	})
	t.Log(n)
}
