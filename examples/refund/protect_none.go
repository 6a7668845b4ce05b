package main

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"time"
)

var withNone = protection{
	name: "none",
	says: "The service looks whether the refund was made and then makes it; two requests at the same moment both look before either writes.",
	open: openNone,
}

// openNone is written as many services are. It has a transaction and a unique refund number, and
// pays twice: the read is not part of the write, and the number is generated per request, so that
// the unique key never finds a duplicate.
func openNone(_ context.Context, s *service) (strategy, error) {
	return func(ctx context.Context, req Request) (Refund, bool, error) {
		var made []Refund
		err := s.pool.SelectContext(ctx, &made, s.pool.Rebind(`SELECT * FROM refunds WHERE intent = ? ORDER BY created_at`), req.Intent())
		if err != nil {
			return Refund{}, false, fmt.Errorf("look for the refund: %w", err)
		}
		if len(made) > 0 {
			return made[0], true, nil
		}
		if err := riskCheck(ctx); err != nil {
			return Refund{}, false, err
		}
		tx, err := s.pool.BeginTxx(ctx, nil)
		if err != nil {
			return Refund{}, false, fmt.Errorf("begin: %w", err)
		}
		defer func() { _ = tx.Rollback() }() // does nothing after a commit
		refund, err := s.book(ctx, tx, req, "rf_"+rand.Text())
		if err != nil {
			return Refund{}, false, err
		}
		if err := tx.Commit(); err != nil {
			return Refund{}, false, fmt.Errorf("commit: %w", err)
		}
		return refund, false, nil
	}, nil
}

// riskCheck stands for the call to another service that often happens between the read and the
// write. Without it the gap is shorter, but still there.
func riskCheck(ctx context.Context) error {
	select {
	case <-time.After(3*time.Millisecond + mathrand.N(5*time.Millisecond)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
