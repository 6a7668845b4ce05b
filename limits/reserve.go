package limits

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// Reserve reserves an amount of a limit, in its own transaction, until Capture, Void or the Timeout.
//
// The same request again returns the reservation, or that it was captured, with Replayed.
//
// Errors: [ErrExceeded], [ErrNotFound], [ErrMismatch]; [ErrVoided] and [ErrExpired] if the id's
// reservation has ended in this way; [holdfast.ErrInvalid], [holdfast.ErrRetry],
// [holdfast.ErrUnknown]; the error of ctx; the driver's.
func (l *Limits[Tx]) Reserve(ctx context.Context, r Request) (e Entry, err error) {
	return l.call(ctx, "limits.reserve", func(ctx context.Context) (Entry, error) {
		at, err := l.checkAdd(r, false)
		if err != nil {
			return Entry{}, err
		}
		return inTx(ctx, l, func(ctx context.Context, q core.Querier) (Entry, error) { return l.add(ctx, q, at, r, false) })
	})
}

// ReserveTx is [Limits.Reserve] in the caller's transaction. The transaction goes on after a refusal. It
// sends two statements.
func (l *Limits[Tx]) ReserveTx(ctx context.Context, tx Tx, r Request) (Entry, error) {
	return l.call(ctx, "limits.reserve_tx", func(ctx context.Context) (Entry, error) {
		at, err := l.checkAdd(r, false)
		if err != nil {
			return Entry{}, err
		}
		return join(ctx, l, tx, func(q core.Querier) (Entry, error) { return l.add(ctx, q, at, r, false) })
	})
}

// Take takes an amount of a limit for good, in its own transaction: Reserve and Capture in one.
//
// The same request again returns what was taken, with Replayed.
//
// Errors: those of [Limits.Reserve].
func (l *Limits[Tx]) Take(ctx context.Context, r Request) (Entry, error) {
	return l.call(ctx, "limits.take", func(ctx context.Context) (Entry, error) {
		at, err := l.checkAdd(r, true)
		if err != nil {
			return Entry{}, err
		}
		return inTx(ctx, l, func(ctx context.Context, q core.Querier) (Entry, error) { return l.add(ctx, q, at, r, true) })
	})
}

// TakeTx is [Limits.Take] in the caller's transaction. The transaction goes on after a refusal. It sends
// two statements.
func (l *Limits[Tx]) TakeTx(ctx context.Context, tx Tx, r Request) (Entry, error) {
	return l.call(ctx, "limits.take_tx", func(ctx context.Context) (Entry, error) {
		at, err := l.checkAdd(r, true)
		if err != nil {
			return Entry{}, err
		}
		return join(ctx, l, tx, func(q core.Querier) (Entry, error) { return l.add(ctx, q, at, r, true) })
	})
}

// call reports f to the tracers.
func (l *Limits[Tx]) call(ctx context.Context, name string, f func(ctx context.Context) (Entry, error)) (e Entry, err error) {
	ctx, span := l.access.Trace.Start(ctx, trace.Call{Name: name, Operation: l.name})
	defer func() {
		span.End(err, func(err error) string {
			if err == nil && e.Replayed {
				return trace.Replayed
			}
			return outcome(err)
		})
	}()
	return f(ctx)
}

func (l *Limits[Tx]) checkAdd(r Request, take bool) (at place, err error) {
	for _, err := range []error{r.checkID(), r.checkAmount(1), r.checkTimeout()} {
		if err != nil {
			return place{}, err
		}
	}
	if !take {
		if err := l.checkReserves(); err != nil {
			return place{}, err
		}
	}
	return l.place("Request.Key", r.Key)
}

func (l *Limits[Tx]) checkReserves() error {
	if l.home.row.reserved == "" {
		return invalid("Table.Reserved", "is empty, so that nothing can be reserved: name a column, or use Take")
	}
	return nil
}

// add adds an amount. Its first statement tests the amount on the row and locks the row, so the second
// one, and all that follow, are alone with the entries of this limit.
// The order of the statements is that of internal/test/model/limits.pml.
func (l *Limits[Tx]) add(ctx context.Context, q core.Querier, at place, r Request, take bool) (Entry, error) {
	stmt := l.sql.reserve
	if take {
		stmt = l.sql.take
	}
	done, err := stmt.Exec(ctx, q, l.counter(at, r.Amount)...)
	if err != nil {
		return Entry{}, err
	}
	if done.Affected > 1 { // rows that the database holds for equal, as by a collation of the column
		return Entry{}, errCounters
	}
	if done.Affected == 0 {
		if e, fits, err := l.makeRoom(ctx, q, at, r, take); err != nil || !fits {
			return e, err
		}
	}
	e := Entry{Key: r.Key, ID: r.ID, Amount: r.Amount, State: Reserved}
	if take {
		e.State, e.Captured = Captured, r.Amount
	}
	won, err := l.insert(ctx, q, e, r)
	if err != nil || won {
		return e, err
	}
	// The id was used before. What was added goes back, in the same transaction.
	if err := l.change(ctx, q, at, e.Captured-e.Amount, -e.Captured); err != nil {
		return Entry{}, err
	}
	e, found, err := l.entry(ctx, q, l.sql.locked, r.ID)
	switch {
	case err != nil:
		return Entry{}, err
	case !found:
		return Entry{}, &holdfast.RetryError{Attempts: 1, Err: errForgotten}
	}
	return l.replay(ctx, q, at, r, e, take)
}

var errForgotten = errors.New("limits: the id was forgotten while it was asked for")

func (l *Limits[Tx]) insert(ctx context.Context, q core.Querier, e Entry, r Request) (won bool, err error) {
	due, keep := r.Timeout.Microseconds(), any(nil)
	switch {
	case e.State == Captured:
		due, keep = 0, l.keep
	case due == 0:
		due = forever
	}
	return l.sql.insert.Run(ctx, q, l.own([]byte(r.ID), []byte(r.Key), e.Amount, e.Captured, int(e.State), due, keep)...)
}

// makeRoom is for an amount that did not fit. It locks the row, and closes reservations that have expired
// until the amount fits. Then it adds the amount. If it does not fit, the id may have been used before.
//
// It looks for the id last: where that read locks a gap (InnoDB at REPEATABLE READ), no insert of this
// call comes behind it.
func (l *Limits[Tx]) makeRoom(ctx context.Context, q core.Querier, at place, r Request, take bool) (e Entry, fits bool, err error) {
	s, err := l.lock(ctx, q, at)
	if err != nil {
		return Entry{}, false, err
	}
	for s.available() < r.Amount {
		n, err := l.expireSome(ctx, q, at, &s)
		if err != nil {
			return Entry{}, false, err
		}
		if n == 0 {
			e, err := l.refuse(ctx, q, at, r, s, take)
			return e, false, err
		}
	}
	reserved, captured := r.Amount, int64(0)
	if take {
		reserved, captured = 0, r.Amount
	}
	return Entry{}, true, l.change(ctx, q, at, reserved, captured)
}

// refuse answers for an amount that does not fit.
func (l *Limits[Tx]) refuse(ctx context.Context, q core.Querier, at place, r Request, s status, take bool) (Entry, error) {
	e, found, err := l.entry(ctx, q, l.sql.locked, r.ID)
	switch {
	case err != nil:
		return Entry{}, err
	case found:
		return l.replay(ctx, q, at, r, e, take)
	}
	return Entry{}, &ExceededError{
		Key: r.Key, Limit: s.limit, Reserved: s.reserved, Captured: s.captured, Asked: r.Amount, Available: s.available(),
	}
}

// replay answers for an id that was used before. The row of the limit is locked.
func (l *Limits[Tx]) replay(ctx context.Context, q core.Querier, at place, r Request, e Entry, take bool) (Entry, error) {
	if err := l.same(r, e); err != nil {
		return Entry{}, err
	}
	if e.overdue() {
		return Entry{}, l.expireOne(ctx, q, at, e)
	}
	e.Replayed = true
	switch {
	case e.State == Voided || e.State == Expired:
		return Entry{}, &EndedError{Entry: e}
	case take && e.State == Reserved:
		return Entry{}, &MismatchError{Found: e, Problem: "for a reservation, which Capture captures"}
	case take && e.Captured != e.Amount:
		return Entry{}, &MismatchError{Found: e, Problem: "for a reservation of which a part was captured"}
	}
	return e, nil
}

// same reports whether e is of the same limit and amount as r.
func (l *Limits[Tx]) same(r Request, e Entry) error {
	switch {
	case e.Key != r.Key:
		return &MismatchError{Found: e, Problem: "with another limit"}
	case e.Amount != r.Amount:
		return &MismatchError{Found: e, Problem: "with another amount"}
	}
	return nil
}
