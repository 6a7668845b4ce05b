package limits

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// Set makes amount the limit, in its own transaction: it creates the limit, raises or lowers it. It
// returns the limit. With Options.Table the row must exist.
//
// Errors: [ErrExceeded] when amount is below what is used, reservations that have expired not counted;
// [ErrNotFound] with Options.Table; [holdfast.ErrInvalid], [holdfast.ErrRetry], [holdfast.ErrUnknown]
// (set it again); the error of ctx; the driver's.
func (l *Limits[Tx]) Set(ctx context.Context, key string, amount int64) (out Status, err error) {
	ctx, span := l.access.Trace.Start(ctx, trace.Call{Name: "limits.set", Operation: l.name})
	defer func() { span.End(err, outcome) }()
	at, err := l.checkSet(key, amount)
	if err != nil {
		return Status{}, err
	}
	return inTx(ctx, l, func(ctx context.Context, q core.Querier) (Status, error) { return l.setTo(ctx, q, at, amount) })
}

// SetTx is [Limits.Set] in the caller's transaction. The transaction goes on after a refusal.
func (l *Limits[Tx]) SetTx(ctx context.Context, tx Tx, key string, amount int64) (out Status, err error) {
	ctx, span := l.access.Trace.Start(ctx, trace.Call{Name: "limits.set_tx", Operation: l.name})
	defer func() { span.End(err, outcome) }()
	at, err := l.checkSet(key, amount)
	if err != nil {
		return Status{}, err
	}
	return join(ctx, l, tx, func(q core.Querier) (Status, error) { return l.setTo(ctx, q, at, amount) })
}

func (l *Limits[Tx]) checkSet(key string, amount int64) (place, error) {
	if amount < 0 {
		return place{}, invalid("amount", fmt.Sprintf("%d is negative", amount))
	}
	return l.place("key", key)
}

// setTo makes the row first, even if it may exist: a locking read of a row that does not exist would lock
// a gap, in which two transactions wait for each other.
func (l *Limits[Tx]) setTo(ctx context.Context, q core.Querier, at place, amount int64) (Status, error) {
	if l.home.own {
		if _, err := l.sql.makeRow.Exec(ctx, q, l.own(at.bytes(), amount)...); err != nil {
			return Status{}, err
		}
	}
	s, err := l.lock(ctx, q, at)
	if err != nil {
		return Status{}, err
	}
	for s.captured+s.reserved > amount {
		n, err := l.expireSome(ctx, q, at, &s)
		if err != nil {
			return Status{}, err
		}
		if n == 0 {
			s.limit = amount
			return Status{}, &ExceededError{Key: at.limit, Limit: amount, Reserved: s.reserved, Captured: s.captured, Available: s.available()}
		}
	}
	if s.limit != amount {
		done, err := l.sql.set.Exec(ctx, q, l.counter(at, amount)...)
		if err == nil && done.Affected != 1 {
			err = errCounters
		}
		if err != nil {
			return Status{}, err
		}
		s.limit = amount
	}
	return statusOf(s, 0), nil
}
