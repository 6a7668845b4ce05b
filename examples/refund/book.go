package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/limits"
)

// Request is a client's request for one refund of one order.
type Request struct {
	Merchant string `json:"merchant"` // the authenticated client
	Order    string `json:"order"`
	Number   string `json:"refund"` // the merchant's own number of this refund of the order: 1, 2, …
	Amount   Money  `json:"amount"`
	Key      string `json:"-"` // Idempotency-Key, which only protect_intent.go uses
}

// Intent returns the key of the one thing that the client wants to happen once. It is derived from
// the business and not generated per request: a browser that retries, a second tab and a nightly
// job all derive the same key. The merchant is part of it, so that no merchant gets the refund of
// another.
func (r Request) Intent() string { return idempotency.KeyOf(r.Merchant, r.Order, r.Number) }

// Refund is a row of refunds.
type Refund struct {
	ID       string `db:"id" json:"id"`
	RefundNo string `db:"refund_no" json:"refund_no"`
	Order    string `db:"order_no" json:"order"`
	Intent   string `db:"intent" json:"intent"`
	Amount   Money  `db:"amount" json:"amount"`
	Created  int64  `db:"created_at" json:"created_at"` // µs since 1970
}

// BusinessID is kept beside the record: see protect_intent.go.
func (r Refund) BusinessID() string { return r.ID }

func newRefund(req Request, refundNo string) Refund {
	return Refund{
		ID: "re_" + rand.Text(), RefundNo: refundNo,
		Order: req.Order, Intent: req.Intent(), Amount: req.Amount, Created: time.Now().UnixMicro(),
	}
}

var errNoOrder = errors.New("there is no such order")

// book makes a refund in the given transaction: its row, the order's balance and the ledger. It
// does not check whether the refund was made before. The strategies do that (see protect.go).
func (s *service) book(ctx context.Context, tx *sqlx.Tx, req Request, refundNo string) (Refund, error) {
	refund := newRefund(req, refundNo)
	// The order's row is locked before a row that may refer to it by a foreign key is inserted: the other way
	// round, MySQL and MariaDB end one of two refunds of an order in a deadlock.
	if err := s.moveMoney(ctx, tx, req.Merchant, refund); err != nil {
		return Refund{}, err
	}
	return refund, insertRefund(ctx, tx, refund)
}

// querier is the pool or a transaction.
type querier interface {
	SelectContext(ctx context.Context, dest any, query string, args ...any) error
	Rebind(query string) string
}

// findRefund finds the refund that an earlier request made.
func findRefund(ctx context.Context, q querier, req Request) (refund Refund, found bool, err error) {
	var made []Refund
	if err := q.SelectContext(ctx, &made, q.Rebind(`SELECT * FROM refunds WHERE intent = ?`), req.Intent()); err != nil {
		return Refund{}, false, fmt.Errorf("look for the refund: %w", err)
	}
	if len(made) == 0 {
		return Refund{}, false, nil
	}
	if !made[0].Amount.Equal(req.Amount) {
		return Refund{}, false, &idempotency.MismatchError{Columns: []string{"amount"}}
	}
	return made[0], true, nil
}

func insertRefund(ctx context.Context, tx *sqlx.Tx, refund Refund) error {
	_, err := tx.NamedExecContext(ctx, `INSERT INTO refunds (id, refund_no, order_no, intent, amount, created_at)
		VALUES (:id, :refund_no, :order_no, :intent, :amount, :created_at)`, refund)
	if err != nil {
		return fmt.Errorf("insert the refund: %w", err)
	}
	return nil
}

// moveMoney is the part of book that business-row uses, because its claim has inserted the row
// already.
func (s *service) moveMoney(ctx context.Context, tx *sqlx.Tx, merchant string, refund Refund) error {
	// One statement on the order's row checks and adds the amount. If two refunds each fit but together
	// do not, the second is refused. Reading the balance first and comparing it here would let both
	// through.
	_, refused := s.refunds.For(merchant).TakeTx(ctx, tx, limits.Request{
		Key: refund.Order, ID: refund.RefundNo, Amount: refund.Amount.Cents(),
	})
	switch {
	case errors.Is(refused, limits.ErrNotFound):
		return errNoOrder
	case refused != nil && !errors.Is(refused, limits.ErrExceeded):
		return fmt.Errorf("add to the order's refunds: %w", refused)
	}
	var order Order
	err := tx.GetContext(ctx, &order, tx.Rebind(`SELECT * FROM orders WHERE order_no = ? AND merchant = ?`), refund.Order, merchant)
	switch {
	case err != nil:
		return fmt.Errorf("read the order: %w", err)
	case refused != nil:
		// Final: it is stored as the result for this refund number.
		return overRefund(refund.Amount, order)
	}
	return postEntries(ctx, tx, refund, order)
}

func overRefund(amount Money, order Order) error {
	return idempotency.Reject("over_refund", fmt.Sprintf("%s %s more would pass the %s paid for the order",
		amount, order.Currency, order.Paid))
}

// Entry is a row of the ledger.
type Entry struct {
	RefundID string `db:"refund_id" json:"refund_id"`
	Account  string `db:"account" json:"account"`
	Amount   Money  `db:"amount" json:"amount"`
}

// postEntries writes the two entries of a refund, which sum to zero.
func postEntries(ctx context.Context, tx *sqlx.Tx, refund Refund, order Order) error {
	for _, entry := range []Entry{
		{refund.ID, "merchant/" + order.Merchant, refund.Amount.Negated()},
		{refund.ID, "customer/" + order.Customer, refund.Amount},
	} {
		_, err := tx.NamedExecContext(ctx, `INSERT INTO ledger (refund_id, account, amount)
			VALUES (:refund_id, :account, :amount)`, entry)
		if err != nil {
			return fmt.Errorf("post to the ledger: %w", err)
		}
	}
	return nil
}
