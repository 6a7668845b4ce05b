package main

import (
	"context"
	"errors"

	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/optimistic"
)

var withOptimistic = protection{
	name: "optimistic",
	says: "Nobody waits: each refund writes the order on condition that its version is the one that was read; who comes second reads again and finds the refund.",
	safe: true,
	open: openOptimistic,
}

func openOptimistic(ctx context.Context, s *service) (strategy, error) {
	orders, err := optimistic.New[Order](ctx, s.db, holdfast.TableSpec{
		Table: "orders", Key: []string{"merchant", "order_no"},
	})
	if err != nil {
		return nil, err
	}
	// Many concurrent refunds of one order need many rounds: one wins each.
	options := optimistic.RetryOptions{Attempts: 50}
	return func(ctx context.Context, req Request) (refund Refund, replayed bool, err error) {
		err = optimistic.Retry(ctx, s.db, func(ctx context.Context, tx *sqlx.Tx) (err error) {
			refund, replayed, err = refundOnVersion(ctx, tx, orders, req)
			return err
		}, options)
		return refund, replayed, err
	}, nil
}

// refundOnVersion reads the order first and looks for the refund afterwards. Every refund changes
// the order's version, so a write that finds the version unchanged proves that no refund was made
// since that read. In the other order, a refund could be made between the two reads.
func refundOnVersion(ctx context.Context, tx *sqlx.Tx, orders *optimistic.Table[Order, *sqlx.Tx], req Request) (Refund, bool, error) {
	order, err := orders.GetTx(ctx, tx, Order{Merchant: req.Merchant, Number: req.Order})
	if errors.Is(err, optimistic.ErrNotFound) {
		return Refund{}, false, errNoOrder
	}
	if err != nil {
		return Refund{}, false, err
	}
	if made, found, err := findRefund(ctx, tx, req); err != nil || found {
		return made, found, err
	}
	if order.Refunded = order.Refunded.Plus(req.Amount); order.Refunded.Exceeds(order.Paid) {
		return Refund{}, false, overRefund(req.Amount, order)
	}
	// Two duplicates may both get here. The second finds another version, and Retry starts it
	// again from the top.
	if _, err := orders.UpdateTx(ctx, tx, order, "refunded"); err != nil {
		return Refund{}, false, err
	}
	refund := newRefund(req, req.Intent())
	if err := insertRefund(ctx, tx, refund); err != nil {
		return Refund{}, false, err
	}
	return refund, false, postEntries(ctx, tx, refund, order)
}
