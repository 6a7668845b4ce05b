package main

import (
	"context"

	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/sqllock"
)

var withLease = protection{
	name: "lease",
	says: "One request at a time has the lock on the order, and a guard refuses one that lost it before its commit; the next one looks and finds the refund.",
	safe: true,
	open: openLease,
}

func openLease(ctx context.Context, s *service) (strategy, error) {
	all, err := s.locker(ctx)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, req Request) (refund Refund, replayed bool, err error) {
		// An existing refund is final, and needs no lock.
		if made, found, err := findRefund(ctx, s.pool, req); err != nil || found {
			return made, found, err
		}
		waiting, stop := context.WithTimeoutCause(ctx, maxWait, idempotency.ErrInProgress)
		defer stop()
		settled := false
		locks := all.For(req.Merchant)
		err = locks.Do(waiting, idempotency.KeyOf("order", req.Order), func(ctx context.Context, lease *sqllock.Lease) (err error) {
			// Use the request's context: a guarded transaction may outlive its lease.
			refund, replayed, err = refundUnderLease(ctx, s, locks, lease, req)
			settled = err == nil
			return err
		})
		if settled {
			// The lease may be lost by now. The commit behind the guard is still valid.
			return refund, replayed, nil
		}
		// Nothing happened, unless a commit is ambiguous (ErrUnknown). On a retry, the read finds
		// its outcome: its guard keeps the lock from being granted before that transaction has
		// ended.
		return Refund{}, false, err
	}, nil
}

// refundUnderLease reads under the lock, and writes behind the guard. The read needs no
// transaction: if another process was granted the lock after it, and may have made this refund,
// the guard fails (ErrLost).
func refundUnderLease(ctx context.Context, s *service, locks *sqllock.Locker[*sqlx.Tx], lease *sqllock.Lease, req Request) (refund Refund, replayed bool, err error) {
	if made, found, err := findRefund(ctx, s.pool, req); err != nil || found {
		return made, found, err
	}
	err = locks.InTx(ctx, lease, func(ctx context.Context, tx *sqlx.Tx) (err error) {
		refund, err = s.book(ctx, tx, req, req.Intent())
		return err
	})
	return refund, false, err
}
