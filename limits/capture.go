package limits

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Capture captures a reservation, in its own transaction: Amount, or all of it if Amount is 0. The rest
// is released.
//
// The same request again returns what was captured, with Replayed.
//
// Errors: [ErrNotFound]; [ErrVoided] and [ErrExpired] if the reservation has ended in this way;
// [ErrMismatch] if it has another limit, if less is reserved, or if another amount was captured;
// [holdfast.ErrInvalid], [holdfast.ErrRetry], [holdfast.ErrUnknown]; the error of ctx; the driver's.
func (l *Limits[Tx]) Capture(ctx context.Context, r Request) (Entry, error) {
	return l.call(ctx, "limits.capture", func(ctx context.Context) (Entry, error) {
		at, err := l.checkEnd(r)
		if err != nil {
			return Entry{}, err
		}
		return inTx(ctx, l, func(ctx context.Context, q core.Querier) (Entry, error) { return l.end(ctx, q, at, r, Captured) })
	})
}

// CaptureTx is [Limits.Capture] in the caller's transaction. The transaction goes on after a refusal.
func (l *Limits[Tx]) CaptureTx(ctx context.Context, tx Tx, r Request) (Entry, error) {
	return l.call(ctx, "limits.capture_tx", func(ctx context.Context) (Entry, error) {
		at, err := l.checkEnd(r)
		if err != nil {
			return Entry{}, err
		}
		return join(ctx, l, tx, func(q core.Querier) (Entry, error) { return l.end(ctx, q, at, r, Captured) })
	})
}

// Void releases a reservation, in its own transaction. Only Key and ID of the request matter.
//
// The same request again returns the voided reservation, with Replayed.
//
// Errors: [ErrNotFound]; [ErrCaptured] and [ErrExpired] if the reservation has ended in this way;
// [ErrMismatch] if it has another limit; [holdfast.ErrInvalid], [holdfast.ErrRetry],
// [holdfast.ErrUnknown]; the error of ctx; the driver's.
func (l *Limits[Tx]) Void(ctx context.Context, r Request) (Entry, error) {
	r.Amount = 0
	return l.call(ctx, "limits.void", func(ctx context.Context) (Entry, error) {
		at, err := l.checkEnd(r)
		if err != nil {
			return Entry{}, err
		}
		return inTx(ctx, l, func(ctx context.Context, q core.Querier) (Entry, error) { return l.end(ctx, q, at, r, Voided) })
	})
}

// VoidTx is [Limits.Void] in the caller's transaction. The transaction goes on after a refusal.
func (l *Limits[Tx]) VoidTx(ctx context.Context, tx Tx, r Request) (Entry, error) {
	r.Amount = 0
	return l.call(ctx, "limits.void_tx", func(ctx context.Context) (Entry, error) {
		at, err := l.checkEnd(r)
		if err != nil {
			return Entry{}, err
		}
		return join(ctx, l, tx, func(q core.Querier) (Entry, error) { return l.end(ctx, q, at, r, Voided) })
	})
}

func (l *Limits[Tx]) checkEnd(r Request) (at place, err error) {
	for _, err := range []error{r.checkID(), r.checkAmount(0), l.checkReserves()} {
		if err != nil {
			return place{}, err
		}
	}
	return l.place("Request.Key", r.Key)
}

// end ends a reservation. It locks the row of the limit first, as every writer of its entries does.
// The order of the statements is that of internal/test/model/limits.pml.
func (l *Limits[Tx]) end(ctx context.Context, q core.Querier, at place, r Request, to State) (Entry, error) {
	if _, err := l.lock(ctx, q, at); err != nil {
		return Entry{}, err
	}
	e, found, err := l.entry(ctx, q, l.sql.locked, r.ID)
	switch {
	case err != nil:
		return Entry{}, err
	case !found:
		return Entry{}, &NotFoundError{Key: r.Key, ID: r.ID}
	case e.Key != r.Key:
		return Entry{}, &MismatchError{Found: e, Problem: "with another limit"}
	case e.overdue():
		return Entry{}, l.expireOne(ctx, q, at, e)
	case e.State != Reserved:
		return l.ended(r, e, to)
	case r.Amount > e.Amount:
		return Entry{}, &MismatchError{Found: e, Problem: "for a reservation of less"}
	}
	captured := int64(0)
	if to == Captured {
		if captured = r.Amount; captured == 0 {
			captured = e.Amount
		}
	}
	done, err := l.sql.end.Exec(ctx, q, l.own([]byte(r.ID), int(to), captured, l.keep)...)
	switch {
	case err != nil:
		return Entry{}, err
	case done.Affected != 1: // it has expired since the read
		return Entry{}, l.expireOne(ctx, q, at, e)
	}
	return Entry{Key: e.Key, ID: e.ID, Amount: e.Amount, Captured: captured, State: to}, l.change(ctx, q, at, -e.Amount, captured)
}

// ended answers for a reservation that has ended.
func (l *Limits[Tx]) ended(r Request, e Entry, to State) (Entry, error) {
	switch {
	case e.State != to:
		return Entry{}, &EndedError{Entry: e}
	case to == Captured && e.Captured != r.Amount && (r.Amount != 0 || e.Captured != e.Amount):
		return Entry{}, &MismatchError{Found: e, Problem: "and another amount was captured"}
	}
	e.Replayed = true
	return e, nil
}
