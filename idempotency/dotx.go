package idempotency

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// DoTx does what Do does inside the caller's transaction: the verdict, a
// rejection included, stands if and when the caller commits.
//
// After a nil error, a *[Rejection], [ErrMismatch] or [ErrExpired] the
// transaction goes on; [holdfast.ErrInvalid] and [ErrNested] have not touched
// it. After every other error Holdfast has rolled tx back:
// begin again and run the whole of it ([holdfast.ErrRetry],
// [ErrInProgress]), or give up. What a caller runs on a connection of its own
// after an error is not protected.
//
// With NoWait, a claim in flight is answered at once on PostgreSQL and MariaDB,
// and within a second on MySQL, whose shortest bound that is.
//
// On PostgreSQL at REPEATABLE READ and above, and on MariaDB with
// innodb_snapshot_isolation, a duplicate that committed after the caller's
// snapshot is ErrRetry: a new transaction sees it.
func DoTx[Tx, T any](ctx context.Context, s *Store[Tx], tx Tx, op Op, fn func(ctx context.Context, tx Tx) (T, error)) (res Result[T], err error) {
	ctx, span := tell(ctx, s.access.Trace, "idempotency.do_tx", op.Name)
	defer func() { span.End(err, func(err error) string { return outcomeOf(res.Outcome, err) }) }()
	c, err := s.check(op)
	if err != nil {
		return res, err
	}
	q, err := s.access.Join(tx)
	if err != nil {
		return res, err
	}
	inner, err := enter(ctx, s.flights, c.hash)
	if err != nil {
		return res, err
	}
	keep := false
	defer func() {
		if !keep {
			s.abandon(ctx, tx)
		}
	}()
	r, outcome, err := s.joined(ctx, tx, q, c, func() (verdict, error) { return encode(inner, s, c, tx, fn) })
	if err != nil {
		return res, s.verdictTx(err)
	}
	res, err = answer[T](s, c, r, outcome)
	var rej *Rejection
	keep = err == nil || errors.As(err, &rej) || errors.Is(err, ErrMismatch) || errors.Is(err, ErrExpired)
	return res, err
}

func (s *Store[Tx]) joined(ctx context.Context, tx Tx, q core.Querier, c *claim, body func() (verdict, error)) (*record, Outcome, error) {
	if err := s.access.Alive(ctx, q); err != nil {
		return nil, 0, err
	}
	if err := s.guard(ctx, tx); err != nil {
		return nil, 0, err
	}
	// The claim comes before any read: a read would fix a snapshot, and what
	// the function reads later would be older than the claim.
	won, err := s.claimTx(ctx, q, c)
	if err != nil {
		return nil, 0, err
	}
	if !won {
		var r record
		found, err := s.sql.lock.QueryRow(ctx, q, r.dest(), c.hash[:])
		known, err := s.known(&r, c, found, err)
		if err != nil || known != nil {
			return known, Replayed, err
		}
		if won, err = s.renewTx(ctx, q, c); err != nil || !won {
			return nil, 0, firstOf(err, errLost)
		}
	}
	return s.runTx(ctx, q, c, body)
}

// renewTx claims a key that has expired: its record goes first.
func (s *Store[Tx]) renewTx(ctx context.Context, q core.Querier, c *claim) (bool, error) {
	bound := min(c.wait, s.options.LockTimeout)
	undo, err := s.dialect().Records.Bound.Change(ctx, q, bound)
	if err != nil {
		return false, err
	}
	won, err := s.claim(ctx, q, c, bound, 0)
	return won, firstOf(err, s.putBack(ctx, q, undo))
}

// putBack undoes a setting of the session, even on a cancelled context.
func (s *Store[Tx]) putBack(ctx context.Context, q core.Querier, undo core.Stmt) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), holdfast.CleanupTimeout)
	defer cancel()
	_, err := undo.Exec(ctx, q)
	return err
}

// runTx runs the function behind a savepoint, so that a rejection undoes its
// writes and keeps the claim.
func (s *Store[Tx]) runTx(ctx context.Context, q core.Querier, c *claim, body func() (verdict, error)) (*record, Outcome, error) {
	// A name of its own: of two savepoints with one name, the inner call's would
	// be the one that the outer rolls back to.
	name := `holdfast_` + hex.EncodeToString(c.attempt)
	if _, err := (core.Stmt{Name: "savepoint", Text: `SAVEPOINT ` + name}).Exec(ctx, q); err != nil {
		return nil, 0, err
	}
	r := &record{print: c.prints.own(), printVersion: c.prints.version}
	var err error
	r.verdict, err = body()
	var rej *Rejection
	if errors.As(err, &rej) {
		if _, err := (core.Stmt{Name: "rollback to", Text: `ROLLBACK TO SAVEPOINT ` + name}).Exec(ctx, q); err != nil {
			return nil, 0, &holdfast.TxLostError{Err: err}
		}
		r.verdict, err = s.options.verdict(c, rejected, rej)
	}
	if err != nil {
		return nil, 0, err
	}
	// Savepoints that stay would lie within one another, one deeper for each call
	// of the transaction.
	if _, err := (core.Stmt{Name: "release", Text: `RELEASE SAVEPOINT ` + name}).Exec(ctx, q); err != nil {
		return nil, 0, &holdfast.TxLostError{Err: err}
	}
	return r, Executed, s.finish(ctx, q, c, r.verdict)
}

// claimTx claims in the caller's transaction and leaves its lock timeout as
// it was. Where the transaction outlives a lock wait that ended, it tries
// again until the wait is over.
func (s *Store[Tx]) claimTx(ctx context.Context, q core.Querier, c *claim) (won bool, err error) {
	d := &s.dialect().Records
	bound := c.wait
	if c.op.NoWait {
		bound = noWaitBound
	}
	if d.ClaimBounds {
		return s.claim(ctx, q, c, bound, 0)
	}
	bound = min(bound, s.options.LockTimeout)
	undo, err := d.Bound.Change(ctx, q, bound)
	if err != nil {
		return false, err
	}
	for deadline := time.Now().Add(c.wait); ; {
		won, err = s.claim(ctx, q, c, bound, 0)
		if err == nil || s.dialect().Classify(err) != dialect.Busy || c.op.NoWait || ctx.Err() != nil || time.Now().After(deadline) {
			break
		}
	}
	return won, firstOf(err, s.putBack(ctx, q, undo))
}

// verdictTx names what a caller does next.
func (s *Store[Tx]) verdictTx(err error) error {
	var atClaim *claimError
	switch s.dialect().Classify(err) {
	case dialect.Busy:
		if errors.As(err, &atClaim) {
			return &InProgressError{Err: err}
		}
		return &holdfast.RetryError{Attempts: 1, Err: err}
	case dialect.Retry:
		return &holdfast.RetryError{Attempts: 1, Err: err}
	}
	if errors.Is(err, errLost) {
		return &holdfast.RetryError{Attempts: 1, Err: err}
	}
	return err
}

func (s *Store[Tx]) abandon(ctx context.Context, tx Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), holdfast.CleanupTimeout)
	defer cancel()
	_ = s.access.Rollback(ctx, tx) // the connection is gone, or the transaction was
}
