package idempotency

import (
	"context"
	"database/sql/driver"
	"encoding/hex"
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
// After [holdfast.ErrInvalid] and [ErrNested] it is untouched. After every other error, such as
// [ErrLikelyDuplicate] or [ErrTooMany], Holdfast has rolled tx back: begin again and run the whole transaction ([holdfast.ErrRetry],
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
func DoTx[Tx, T any](ctx context.Context, s *Store[Tx], tx Tx, op Op, fn func(ctx context.Context, tx Tx) (T, error)) (res Result[T], err error) {
	ctx, span := once.StartSpan(ctx, s.access.Trace, "idempotency.do_tx", op.Name)
	defer func() { span.End(err, func(err error) string { return outcomeOf(res.Outcome, err) }) }()
	c, err := s.check(op)
	if err != nil {
		return res, err
	}
	c.request(ctx)
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
	r, outcome, err := s.joined(ctx, tx, q, c, func() (storedResult, error) { return encode(inner, s, c, tx, fn, &own) })
	if err != nil {
		keep = true // abandoned here
		clean := s.abandon(ctx, tx)
		return res, once.Unstored[*Rejection](s.blocked(ctx, c, s.explainTx(err, clean)))
	}
	s.executedAgain(ctx, c, outcome)
	res, err = traced[T](s, c, r, outcome, &span)
	var rej *Rejection
	keep = err == nil || errors.As(err, &rej) || errors.Is(err, ErrMismatch) || errors.Is(err, ErrExpired)
	return res, err
}

func (s *Store[Tx]) joined(ctx context.Context, tx Tx, q core.Querier, c *call, body func() (storedResult, error)) (*record, Outcome, error) {
	if err := s.access.Alive(ctx, q); err != nil {
		return nil, 0, err
	}
	if err := s.guard(ctx, tx); err != nil {
		return nil, 0, err
	}
	// Claim before any read: a read would fix a snapshot, and the function would then read data
	// older than the claim.
	won, err := s.claimTx(ctx, q, c)
	if err != nil {
		return nil, 0, err
	}
	if !won {
		var r record
		found, err := s.sql.lock.QueryRow(ctx, q, r.dest(), c.args()...)
		known, err := s.known(&r, c, found, err)
		if err != nil || known != nil {
			return known, Replayed, err
		}
		if won, err = s.renewTx(ctx, q, c); err != nil || !won {
			return nil, 0, once.FirstOf(err, once.ErrTaken)
		}
	}
	if err := s.admit(ctx, q, c.op.Owner, 1); err != nil {
		return nil, 0, err
	}
	return s.runTx(ctx, q, c, body)
}

// renewTx deletes the expired record of a key and claims the key again.
func (s *Store[Tx]) renewTx(ctx context.Context, q core.Querier, c *call) (bool, error) {
	wait := min(c.wait, s.options.LockTimeout)
	return s.sql.claim.Bounded(ctx, q, wait, func() (bool, error) { return s.claim(ctx, q, c, s.claiming(c, wait, 0), false) })
}

// runTx runs the function behind a savepoint, so that a rejection undoes the function's writes and
// keeps the claim.
func (s *Store[Tx]) runTx(ctx context.Context, q core.Querier, c *call, body func() (storedResult, error)) (*record, Outcome, error) {
	// The name is unique. If two savepoints had the same name, the outer call would roll back to
	// the savepoint of the inner call.
	name := `holdfast_` + hex.EncodeToString(c.attempt)
	if _, err := (core.Stmt{Name: "savepoint", Text: `SAVEPOINT ` + name}).Exec(ctx, q); err != nil {
		return nil, 0, err
	}
	r := c.executing()
	err := s.intendTx(ctx, q, c)
	if err == nil {
		if r.storedResult, err = body(); err != nil {
			err = &once.FuncError{Err: err}
		}
	}
	var rej *Rejection
	if err != nil && once.Decides(err, &rej) {
		if _, err := (core.Stmt{Name: "rollback to", Text: `ROLLBACK TO SAVEPOINT ` + name}).Exec(ctx, q); err != nil {
			return nil, 0, s.lost(err)
		}
		r.storedResult, err = s.options.encode(c, rejected, rej)
	}
	if err != nil {
		return nil, 0, err
	}
	// Release the savepoint. Otherwise each call in the transaction would add one more nested
	// savepoint.
	if _, err := (core.Stmt{Name: "release", Text: `RELEASE SAVEPOINT ` + name}).Exec(ctx, q); err != nil {
		return nil, 0, s.lost(err)
	}
	return r, Executed, s.finish(ctx, q, c, r.storedResult)
}

// lost makes the error for a savepoint that is gone. The function has ended the transaction, or
// the server has.
func (s *Store[Tx]) lost(err error) error {
	if s.dialect().Classify(err) == dialect.Retry {
		return err
	}
	return &holdfast.TxLostError{Err: err}
}

// claimTx claims in the caller's transaction and restores its lock timeout.
func (s *Store[Tx]) claimTx(ctx context.Context, q core.Querier, c *call) (bool, error) {
	wait := c.wait
	if c.op.NoWait {
		wait = 0
	}
	return s.sql.claim.InTx(ctx, q, wait, s.options.LockTimeout, func(wait time.Duration) (bool, error) {
		return s.claim(ctx, q, c, s.claiming(c, wait, 0), false)
	})
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
