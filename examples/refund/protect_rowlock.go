package main

import (
	"context"
	"errors"

	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

var withRowLock = protection{
	name: "row-lock",
	says: "Each refund locks the order's own row (SELECT ... FOR UPDATE) until its transaction ends; a duplicate waits, looks and finds the refund.",
	safe: true,
	open: openRowLock,
}

func openRowLock(ctx context.Context, s *service) (strategy, error) {
	// NewTable checks once that the key names one row and that the table has row locks. It refuses
	// row locks on a cluster that takes writes on several nodes.
	orders, err := rowlock.NewTable[Order](ctx, s.db, holdfast.TableSpec{
		Table: "orders", Key: []string{"merchant", "order_no"},
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, req Request) (refund Refund, replayed bool, err error) {
		err = s.db.InTx(ctx, func(ctx context.Context, tx *sqlx.Tx) (err error) {
			refund, replayed, err = refundUnderRowLock(ctx, tx, s, orders, req)
			return err
		})
		return refund, replayed, err
	}, nil
}

// refundUnderRowLock locks before it reads anything else. So in every isolation level, the read
// sees the commit of the previous lock holder, even if that holder got no answer to its commit. A
// retry therefore finds the outcome.
func refundUnderRowLock(ctx context.Context, tx *sqlx.Tx, s *service, orders *rowlock.Table[Order, *sqlx.Tx], req Request) (Refund, bool, error) {
	_, err := orders.LockTx(ctx, tx, maxWait, Order{Merchant: req.Merchant, Number: req.Order})
	switch {
	case errors.Is(err, rowlock.ErrNotFound):
		return Refund{}, false, errNoOrder
	case errors.Is(err, rowlock.ErrTimeout):
		return Refund{}, false, idempotency.ErrInProgress
	case err != nil:
		return Refund{}, false, err
	}
	if made, found, err := findRefund(ctx, tx, req); err != nil || found {
		return made, found, err
	}
	refund, err := s.book(ctx, tx, req, req.Intent())
	return refund, false, err
}
