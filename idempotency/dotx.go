package idempotency

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// DoTx does what Do does, inside the caller's transaction. The result, including a rejection,
// takes effect when the caller commits.
//
// After a nil error, a *[Rejection], [ErrMismatch] or [ErrExpired], the transaction can continue.
// After [ErrNested] it is untouched, and after a [holdfast.ErrInvalid] about op or tx; one about the
// result rolls it back, too. After every other error, such as [ErrSimilar] or [ErrTooMany], Holdfast has rolled tx back: begin again and run the whole transaction ([holdfast.ErrRetry],
// [ErrInProgress]), or give up. Statements that the caller runs after an error on a connection of
// its own are not protected.
//
// On PostgreSQL each call holds a lock until the transaction ends. Thousands of calls in one
// transaction need a larger max_locks_per_transaction; see businessrow for many rows at once.
//
// With NoWait, DoTx fails with ErrInProgress at once on PostgreSQL and MariaDB while another call
// holds the key. On MySQL it fails within a second, the shortest bound that MySQL has.
//
// On PostgreSQL at REPEATABLE READ and above, and on MariaDB with innodb_snapshot_isolation, DoTx
// returns ErrRetry if a duplicate committed after the caller's snapshot. A new transaction sees
// that record.
func DoTx[T, Tx any](ctx context.Context, s *Store[Tx], tx Tx, op Op, fn func(ctx context.Context, tx Tx) (T, error)) (res Result[T], err error) {
	ctx, span := once.StartSpan(ctx, s.access.Trace, "idempotency.do_tx", op.Name)
	defer func() { span.End(err, func(err error) string { return outcomeOf(res.Outcome, err) }) }()
	c, err := s.check(op)
	if err != nil {
		return res, err
	}
	c.requestID = requestID(ctx)
	q, err := s.access.Join(tx)
	if err != nil {
		return res, err
	}
	inner, err := once.Enter(ctx, s.flights, c.hash, true)
	if err != nil {
		return res, err
	}
	keep := false
	defer func() {
		if !keep {
			s.abandon(ctx, tx)
		}
	}()
	var own T
	j := &joined[Tx]{s: s, p: &pending{call: c, deadline: time.Now().Add(c.wait)}, q: q, attempt: once.RandomID()}
	if c.similar != nil {
		j.similar = &similarClaim[Tx]{s: s, call: c}
	}
	r, outcome, err := j.do(ctx, tx, func() (storedResult, error) { return run(inner, s, c, tx, fn, &own) })
	if err != nil {
		keep = true // abandoned here
		clean := s.abandon(ctx, tx)
		return res, once.Unstored[*Rejection](s.blocked(ctx, j.p, s.explainTx(err, clean)))
	}
	if j.similar != nil && r.state == succeeded {
		j.similar.executed(ctx)
	}
	res, err = traced[T](s, c, r, outcome, &span)
	var rej *Rejection
	keep = err == nil || errors.As(err, &rej) || errors.Is(err, ErrMismatch) || errors.Is(err, ErrExpired)
	return res, err
}

// explainTx adds to err what the caller must do next. clean means that the transaction was rolled
// back and the connection still works.
func (s *Store[Tx]) explainTx(err error, clean bool) error {
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, holdfast.ErrRowsOpen) {
		return unsent(err, clean)
	}
	var atClaim *once.ClaimError
	var inFunc *once.FuncError
	ran := errors.As(err, &inFunc)
	if ran {
		err = inFunc.Err
	}
	switch s.dialect().Classify(err) {
	case dialect.Busy:
		if !ran && errors.As(err, &atClaim) {
			return &InProgressError{Err: err}
		}
		return &holdfast.RetryError{Attempts: 1, Err: err}
	case dialect.Retry:
		return &holdfast.RetryError{Attempts: 1, Err: err}
	}
	if !ran && errors.Is(err, once.ErrTaken) {
		return &holdfast.RetryError{Attempts: 1, Err: err}
	}
	return err
}

// unsent says why the driver sent nothing. If database/sql could roll back, rows were open and
// database/sql has closed them. Otherwise go-sql-driver has closed the connection because its rows
// were open, or the connection was lost.
func unsent(err error, clean bool) error {
	var lost *holdfast.TxLostError
	if errors.As(err, &lost) {
		err = lost.Err
	}
	switch {
	case errors.Is(err, holdfast.ErrRowsOpen):
		return err
	case clean:
		return fmt.Errorf("%w: %w", holdfast.ErrRowsOpen, err)
	}
	return &holdfast.TxLostError{Err: fmt.Errorf("the connection was lost, or rows were left open on it (defer rows.Close()): %w", err)}
}

func (s *Store[Tx]) abandon(ctx context.Context, tx Tx) (clean bool) {
	ctx, cancel := core.Cleanup(ctx)
	defer cancel()
	return s.access.Rollback(ctx, tx) == nil // otherwise the connection, or the transaction, is gone
}
