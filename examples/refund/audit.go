package main

import (
	"context"
	"fmt"

	"github.com/jmoiron/sqlx"
)

// books is the content of one merchant's tables.
type books struct {
	orders  []Order
	refunds []Refund
	entries []Entry
}

func readBooks(ctx context.Context, pool *sqlx.DB, merchant string) (books, error) {
	var b books
	const ofMerchant = ` JOIN orders o ON o.order_no = r.order_no WHERE o.merchant = ?`
	for _, read := range []struct {
		into any
		text string
	}{
		{&b.orders, `SELECT * FROM orders WHERE merchant = ? ORDER BY order_no`},
		{&b.refunds, `SELECT r.* FROM refunds r` + ofMerchant},
		{&b.entries, `SELECT l.* FROM ledger l JOIN refunds r ON r.id = l.refund_id` + ofMerchant},
	} {
		if err := pool.SelectContext(ctx, read.into, pool.Rebind(read.text), merchant); err != nil {
			return b, fmt.Errorf("read the tables: %w", err)
		}
	}
	return b, nil
}

// findings is the result of an audit.
type findings struct {
	refunds    int
	duplicates int      // refunds beyond the first of an intent
	missing    int      // orders without a refund
	problems   []string // all errors, one sentence each
}

// audit checks books in which each order was to be refunded once. It reads rows only and ignores
// what clients and services report.
func audit(b books) findings {
	f := findings{refunds: len(b.refunds)}
	complain := func(format string, args ...any) { f.problems = append(f.problems, fmt.Sprintf(format, args...)) }

	perIntent := map[string]int{}
	perOrder := map[string]Money{}
	amounts := map[string]Money{} // by the refund's id
	for _, r := range b.refunds {
		if perIntent[r.Intent]++; perIntent[r.Intent] > 1 {
			f.duplicates++
		}
		perOrder[r.Order] = perOrder[r.Order].Plus(r.Amount)
		amounts[r.ID] = r.Amount
	}
	for intent, n := range perIntent {
		if n > 1 {
			complain("refund %s was made %d times", intent, n)
		}
	}
	for _, o := range b.orders {
		total, refunded := perOrder[o.Number]
		if !refunded {
			f.missing++
			complain("order %s was not refunded", o.Number)
		}
		if total.Exceeds(o.Paid) || o.Refunded.Exceeds(o.Paid) {
			complain("order %s: %s refunded of %s paid", o.Number, total, o.Paid)
		}
		if !total.Equal(o.Refunded) {
			complain("order %s says %s refunded, and its refunds are %s", o.Number, o.Refunded, total)
		}
	}
	auditLedger(b.entries, amounts, complain)
	return f
}

// auditLedger checks that each refund has two entries of its amount that sum to zero.
func auditLedger(entries []Entry, amounts map[string]Money, complain func(string, ...any)) {
	count := map[string]int{}
	sums := map[string]Money{}
	for _, e := range entries {
		count[e.RefundID]++
		sums[e.RefundID] = sums[e.RefundID].Plus(e.Amount)
		amount, known := amounts[e.RefundID]
		if !known || !e.Amount.Equal(amount) && !e.Amount.Equal(amount.Negated()) {
			complain("ledger: %s on %s is not the amount of refund %s", e.Amount, e.Account, e.RefundID)
		}
	}
	for id := range amounts {
		if count[id] != 2 {
			complain("ledger: refund %s has %d entries instead of 2", id, count[id])
		}
		if !sums[id].Equal(Money{}) {
			complain("ledger: the entries of refund %s sum to %s instead of zero", id, sums[id])
		}
	}
}
