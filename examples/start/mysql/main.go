// Command mysql refunds an order once, on MySQL or MariaDB through database/sql.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/migrations"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	config, err := mysql.ParseDSN(os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return err
	}
	pool := sql.OpenDB(holdfastsql.Connector(connector)) // sql.Open works too, with more round trips
	defer pool.Close()
	// Holdfast's tables, and one of yours.
	if err := migrations.Up(ctx, pool); err != nil {
		return err
	}
	if _, err := pool.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS refunds (order_no VARCHAR(64), cents BIGINT)`); err != nil {
		return err
	}

	db, err := holdfastsql.Open(ctx, pool)
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
		}, func(ctx context.Context, tx *sql.Tx) (string, error) {
			_, err := tx.ExecContext(ctx, `INSERT INTO refunds VALUES ('42', 1250)`)
			return "refund of 1250 cents for order 42", err
		})
		if err != nil {
			return err
		}
		fmt.Printf("%v: %s\n", refund.Outcome, refund.Value)
	}
	return nil
}
