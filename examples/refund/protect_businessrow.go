package main

import (
	"context"

	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/businessrow"
)

var withBusinessRow = protection{
	name: "business-row",
	says: "The refund's own row, under its unique number, is both the lock and the record; no other table is needed.",
	safe: true,
	open: openBusinessRow,
}

func openBusinessRow(ctx context.Context, s *service) (strategy, error) {
	// New checks once that refund_no is NOT NULL, compares byte for byte and has a full unique
	// index.
	refunds, err := businessrow.New[Refund](ctx, s.db, holdfast.TableSpec{Table: "refunds", Key: []string{"refund_no"}},
		businessrow.Options{Compare: []string{"order_no", "amount"}, Wait: maxWait})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, req Request) (Refund, bool, error) {
		row := newRefund(req, req.Intent())
		result, err := refunds.Do(ctx, row, func(ctx context.Context, tx *sqlx.Tx) error {
			// The row is inserted. A rejection removes it again and so is not stored. On a retry,
			// the order's balance decides again.
			return s.moveMoney(ctx, tx, req.Merchant, row)
		})
		return result.Value, result.Outcome == idempotency.Replayed, err
	}, nil
}
