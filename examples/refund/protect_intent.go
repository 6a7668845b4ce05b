package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/idempotency"
)

// These two take the key that the client sends, as services do whose requests carry no number of
// their own. A page that generates a key for each click then asks for two refunds.

var withIntentGuard = protection{
	name: "intent-guard",
	says: "Each click has a key of its own; while one refund of an order and amount is ten minutes old or less, another one is taken for the same click and gets its answer.",
	safe: true,
	open: func(ctx context.Context, s *service) (strategy, error) { return openKeys(ctx, s, 10*time.Minute) },
}

var withKeyPerClick = protection{
	name: "key-per-click",
	says: "Each click has a key of its own, so that every click is a refund of its own.",
	open: func(ctx context.Context, s *service) (strategy, error) { return openKeys(ctx, s, 0) },
}

// openKeys opens a store whose operations are alike for as long as window; 0 is never.
func openKeys(ctx context.Context, s *service, window time.Duration) (strategy, error) {
	store, err := idempotency.New(ctx, s.db, idempotency.Options{Namespace: "refund-example-keys", Wait: maxWait})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, req Request) (Refund, bool, error) {
		key := req.Key
		if key == "" {
			key = rand.Text()
		}
		op := idempotency.Op{Owner: req.Merchant, Name: "refund", Key: key, Request: req}
		if window > 0 {
			op.Similar = &idempotency.Similar{By: []string{req.Order, req.Amount.String()}, Window: window}
		}
		result, err := idempotency.Do(ctx, store, op, func(ctx context.Context, tx *sqlx.Tx) (Refund, error) {
			return s.book(ctx, tx, req, "rf_"+rand.Text())
		})
		var similar *idempotency.SimilarError
		if errors.As(err, &similar) {
			// A page with a person in front of it would ask, and confirm with its Token.
			refund, err := s.refundByID(ctx, similar.BusinessID)
			return refund, true, err
		}
		return result.Value, result.Outcome == idempotency.Replayed, err
	}, nil
}

func (s *service) refundByID(ctx context.Context, id string) (refund Refund, err error) {
	if err = s.pool.GetContext(ctx, &refund, s.pool.Rebind(`SELECT * FROM refunds WHERE id = ?`), id); err != nil {
		err = fmt.Errorf("read the refund that was made before: %w", err)
	}
	return refund, err
}
