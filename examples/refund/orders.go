package main

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/jmoiron/sqlx"
)

// Order is an order that a customer has paid.
type Order struct {
	Number   string `db:"order_no" json:"order"`
	Merchant string `db:"merchant" json:"merchant"`
	Customer string `db:"customer" json:"customer"`
	Currency string `db:"currency" json:"currency"`
	Paid     Money  `db:"paid" json:"paid"`
	Refunded Money  `db:"refunded" json:"refunded"`
	Created  int64  `db:"created_at" json:"-"`
	Version  int64  `db:"version" json:"-"` // increased by every write
}

const insertOrder = `INSERT INTO orders (order_no, merchant, customer, currency, paid, refunded, created_at)
	VALUES (:order_no, :merchant, :customer, :currency, :paid, :refunded, :created_at)`

// createOrders stores paid orders, all or none.
func createOrders(ctx context.Context, pool *sqlx.DB, orders []Order) error {
	tx, err := pool.BeginTxx(ctx, nil)
	if err != nil {
		return fmt.Errorf("create orders: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	for _, o := range orders {
		o.Created = time.Now().UnixMicro()
		if _, err := tx.NamedExecContext(ctx, insertOrder, o); err != nil {
			return fmt.Errorf("create order %s: %w", o.Number, err)
		}
	}
	return tx.Commit()
}

// recentOrders lists a merchant's newest orders.
func recentOrders(ctx context.Context, pool *sqlx.DB, merchant string, limit int) ([]Order, error) {
	orders := []Order{}
	err := pool.SelectContext(ctx, &orders, pool.Rebind(
		`SELECT * FROM orders WHERE merchant = ? ORDER BY created_at DESC, order_no LIMIT ?`), merchant, limit)
	return orders, err
}

// demoOrder invents an order.
func demoOrder(merchant string) Order {
	customers := []string{"Ada", "Blaise", "Chien-Shiung", "Dorothy", "Emmy", "Fatima", "Grace", "Hedy"}
	return Order{
		Number:   "A-" + rand.Text()[:6],
		Merchant: merchant,
		Customer: customers[mathrand.IntN(len(customers))],
		Currency: "EUR",
		Paid:     fromCents(int64(4000 + 50*mathrand.IntN(200))),
	}
}
