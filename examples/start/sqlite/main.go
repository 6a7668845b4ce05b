// Command sqlite refunds an order once, in a file.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/migrations"
)

func main() {
	ctx := context.Background()
	pool := must(sql.Open("sqlite", "file:shop.db"))
	must(0, migrations.Up(ctx, pool)) // Holdfast's tables, and one of yours
	must(pool.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS refunds (order_no TEXT, cents INTEGER)`))

	db := must(holdfastsql.Open(ctx, pool)) // your *sql.DB; the engine is detected
	store := must(idempotency.New(ctx, db))
	for range 2 { // the user double-clicks
		refund := must(idempotency.Do(ctx, store, idempotency.Op{
			Owner: "shop-7", Name: "refund", Key: idempotency.KeyOf("42", "1"), // order, refund number
			Request: map[string]int{"cents": 1250},
		}, func(ctx context.Context, tx *sql.Tx) (string, error) {
			_, err := tx.ExecContext(ctx, `INSERT INTO refunds VALUES ('42', 1250)`)
			return "refund of 1250 cents for order 42", err
		}))
		fmt.Printf("%v: %s\n", refund.Outcome, refund.Value)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
