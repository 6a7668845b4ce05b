package main

import (
	"context"

	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/sqllock"
)

var withLease = protection{
	name: "lease",
	says: "One request at a time has the lock on the order, and a guard refuses one that lost it before its commit; the next one looks and finds the refund.",
	safe: true,
	open: openLease,
}

func openLease(_ context.Context, s *service) (strategy, error) {
	return func(ctx context.Context, req Request) (refund Refund, replayed bool, err error) {
		// A refund that is found is final, and needs no lock.
		if made, found, err := findRefund(ctx, s.pool, req); err != nil || found {
			return made, found, err
		}
		waiting, stop := context.WithTimeoutCause(ctx, maxWait, idempotency.ErrInProgress)
		defer stop()
		settled := false
		key := idempotency.KeyOf("order", req.Merchant, req.Order)
		err = s.locks.Do(waiting, key, func(_ context.Context, lease *sqllock.Lease) (err error) {
			// On the request's context: a guarded transaction may outlive its lease.
			refund, replayed, err = refundUnderLease(ctx, s, lease.Term(), req)
			settled = err == nil
			return err
		})
		if settled {
			// The lease may be lost by now. What was committed behind the guard stands.
			return refund, replayed, nil
		}
		// Nothing happened, but for a commit in doubt (ErrUnknown). Asked again,
		// the look tells what became of that one: its guard keeps the lock from
		// being granted before it has ended.
		return Refund{}, false, err
	}, nil
}

// refundUnderLease looks under the lock, and writes behind the guard. The look
// needs no transaction: if somebody else was granted the lock after it, and may
// have made this refund, the guard refuses (ErrLost).
func refundUnderLease(ctx context.Context, s *service, term sqllock.Term, req Request) (refund Refund, replayed bool, err error) {
	if made, found, err := findRefund(ctx, s.pool, req); err != nil || found {
		return made, found, err
	}
	err = s.db.InTx(ctx, holdfast.TxOptions{}, func(ctx context.Context, tx *sqlx.Tx) (err error) {
		if err := s.locks.Guard(ctx, tx, term); err != nil {
			return err
		}
		refund, err = book(ctx, tx, req, req.Intent())
		return err
	})
	return refund, false, err
}
