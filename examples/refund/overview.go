package main

import (
	"context"

	"github.com/jmoiron/sqlx"
)

// orderView is an order as the page shows it.
type orderView struct {
	Order
	Refunds    int `json:"refunds"`
	Duplicates int `json:"duplicates"` // refunds beyond the first of an intent
}

// shownOrders bounds the number of orders on the page.
const shownOrders = 12

// overview reads the orders and counts, in the tables, how often each was refunded.
func (s *service) overview(ctx context.Context, merchant string) ([]orderView, error) {
	orders, err := recentOrders(ctx, s.pool, merchant, shownOrders)
	if err != nil {
		return nil, err
	}
	views := make([]orderView, len(orders))
	for i, o := range orders {
		var perIntent []int
		err := s.pool.SelectContext(ctx, &perIntent, s.pool.Rebind(
			`SELECT COUNT(*) FROM refunds WHERE order_no = ? GROUP BY intent`), o.Number)
		if err != nil {
			return nil, err
		}
		views[i].Order = o
		for _, n := range perIntent {
			views[i].Refunds += n
			views[i].Duplicates += n - 1
		}
	}
	return views, nil
}

// shownEntries bounds the number of ledger entries on the page.
const shownEntries = 50

// ledger reads a merchant's newest entries and the total that it has paid out.
func (s *service) ledger(ctx context.Context, merchant string) ([]Entry, Money, error) {
	account := "merchant/" + merchant
	entries := []Entry{}
	err := s.pool.SelectContext(ctx, &entries, s.pool.Rebind(
		`SELECT l.refund_id, l.account, l.amount FROM ledger l
		JOIN refunds r ON r.id = l.refund_id JOIN orders o ON o.order_no = r.order_no
		WHERE o.merchant = ? ORDER BY r.created_at DESC, l.refund_id, l.account LIMIT ?`), merchant, shownEntries)
	if err != nil {
		return nil, Money{}, err
	}
	paidOut, err := sum(ctx, s.pool, account)
	return entries, paidOut.Negated(), err
}

func sum(ctx context.Context, pool *sqlx.DB, account string) (Money, error) {
	var amounts []Money
	// Sum in Go, because the sum of a BIGINT has another type on every engine.
	err := pool.SelectContext(ctx, &amounts, pool.Rebind(`SELECT amount FROM ledger WHERE account = ?`), account)
	total := Money{}
	for _, a := range amounts {
		total = total.Plus(a)
	}
	return total, err
}
