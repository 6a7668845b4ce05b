package holdfast_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/migrations"
)

// The same refund is requested twice and happens once.
func Example() {
	if err := shop(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// executed: refund of 1250 cents for order 42
	// replayed: refund of 1250 cents for order 42
	// refunds in the table: 1
}

// shop sets up the rest of the program: a pool and the tables.
func shop(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "holdfast")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	pool, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db"))
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := migrations.Up(ctx, pool); err != nil {
		return err
	}
	if _, err := pool.ExecContext(ctx, `CREATE TABLE refunds (order_no TEXT, cents INTEGER)`); err != nil {
		return err
	}
	return refundTwice(ctx, pool)
}

func refundTwice(ctx context.Context, pool *sql.DB) error {
	db, err := holdfastsql.Open(ctx, pool) // your *sql.DB; the engine is detected
	if err != nil {
		return err
	}
	store, err := idempotency.New(ctx, db)
	if err != nil {
		return err
	}
	for range 2 { // the user double-clicks
		refund, err := idempotency.Do(ctx, store, idempotency.Op{
			Owner: "shop-7", Name: "refund", Key: idempotency.KeyOf("42", "1"), // order, refund number
			Request: map[string]int{"cents": 1250},
		}, func(ctx context.Context, tx *sql.Tx) (string, error) { // your own transaction type
			_, err := tx.ExecContext(ctx, `INSERT INTO refunds VALUES ('42', 1250)`)
			return "refund of 1250 cents for order 42", err
		})
		if err != nil {
			return err
		}
		fmt.Printf("%v: %s\n", refund.Outcome, refund.Value)
	}
	var n int
	err = pool.QueryRowContext(ctx, `SELECT COUNT(*) FROM refunds`).Scan(&n)
	fmt.Println("refunds in the table:", n)
	return err
}
