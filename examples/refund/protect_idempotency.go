package main

import (
	"context"

	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/idempotency"
)

var withIdempotency = protection{
	name: "idempotency",
	says: "Each refund's key is claimed and its answer stored in the transaction that moves the money; a duplicate gets the stored answer.",
	safe: true,
	open: openIdempotency,
}

func openIdempotency(ctx context.Context, s *service) (strategy, error) {
	store, err := idempotency.New(ctx, s.db, idempotency.Options{
		Namespace: "refund-example",
		Wait:      maxWait,
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, req Request) (Refund, bool, error) {
		result, err := idempotency.Do(ctx, store, idempotency.Op{
			Owner:   req.Merchant,
			Name:    "refund",
			Key:     req.Intent(),
			Request: req, // the same key with another amount is a mismatch
		}, func(ctx context.Context, tx *sqlx.Tx) (Refund, error) {
			return s.book(ctx, tx, req, req.Intent())
		})
		return result.Value, result.Outcome == idempotency.Replayed, err
	}, nil
}
