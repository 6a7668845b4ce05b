// Command gorm refunds an order once, on PostgreSQL through GORM.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/holdfastgorm"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/migrations"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	pool, err := gorm.Open(postgres.Open(os.Getenv("DATABASE_URL")))
	if err != nil {
		return err
	}
	sqlDB, err := pool.DB()
	if err != nil {
		return err
	}
	defer sqlDB.Close()
	// Holdfast's tables, and one of yours.
	if err := migrations.Up(ctx, sqlDB); err != nil {
		return err
	}
	if err := pool.AutoMigrate(&Refund{}); err != nil {
		return err
	}

	db, err := holdfastgorm.Open(ctx, pool)
	if err != nil {
		return err
	}
	store, err := idempotency.New(ctx, db)
	if err != nil {
		return err
	}
	for range 2 { // the user double-clicks
		refund, err := holdfastgorm.Do(ctx, pool, store, idempotency.Op{
			Owner: "shop-7", Name: "refund", Key: idempotency.KeyOf("42", "1"), // order, refund number
			Request: map[string]int{"cents": 1250},
		}, func(tx *gorm.DB) (string, error) {
			return "refund of 1250 cents for order 42", tx.Create(&Refund{OrderNo: "42", Cents: 1250}).Error
		})
		if err != nil {
			return err
		}
		fmt.Printf("%v: %s\n", refund.Outcome, refund.Value)
	}
	return nil
}

// Refund is a row of yours.
type Refund struct {
	ID      uint
	OrderNo string
	Cents   int64
}
