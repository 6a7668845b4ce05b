package shop

import (
	"context"
	"database/sql"
	"net/http"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
)

func refund(ctx context.Context, store *idempotency.Store[*sql.Tx], pool *sql.DB, order string) error {
	op := idempotency.Op{Owner: "shop-7", Name: "refund", Key: order + time.Now().String()}
	_, err := idempotency.Do(ctx, store, op, func(ctx context.Context, tx *sql.Tx) (string, error) {
		if _, err := pool.ExecContext(ctx, `UPDATE orders SET state = 'refunded' WHERE order_no = ?`, order); err != nil {
			return "", err
		}
		_, err := http.Post("https://bank.example/refunds?order="+order, "", nil)
		return "refunded", err
	})
	return err
}
