package idempotency

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// joined is the protocol of DoTx on every engine, whose models are DoTx in lockfirst.pml and in
// claimfirst.pml: claim inserts the record in the caller's transaction, and finish adds the result. The
// caller commits.
type joined[Tx any] struct {
	s       *Store[Tx]
	p       *pending
	q       core.Querier
	attempt []byte
	similar *similarClaim[Tx] // nil without a Similar
}

func (j *joined[Tx]) do(ctx context.Context, tx Tx, body func() (storedResult, error)) (*record, Outcome, error) {
	s := j.s
	if err := s.access.Alive(ctx, j.q); err != nil {
		return nil, 0, err
	}
	if s.lease != nil {
		if err := s.guard(ctx, tx); err != nil {
			return nil, 0, err
		}
	}
	// Claim before any read: a read would fix a snapshot, and the function would then read data
	// older than the claim.
	won, err := j.claim(ctx)
	if err != nil {
		return nil, 0, err
	}
	if !won {
		var r *record
		if r, j.p.expired, err = s.find(ctx, j.q, &s.sql.lock, j.p.call); err != nil || r != nil {
			return r, Replayed, err
		}
		if won, err = j.renew(ctx); err != nil || !won {
			return nil, 0, once.FirstOf(err, once.ErrTaken)
		}
	}
	if err := s.admit(ctx, j.q, j.p.op.Owner, 1); err != nil {
		return nil, 0, err
	}
	return j.run(ctx, body)
}

// claim claims the key, and restores the transaction's lock timeout.
func (j *joined[Tx]) claim(ctx context.Context) (bool, error) {
	wait := j.p.wait
	if j.p.noWait {
		wait = 0
	}
	return j.s.sql.claim.InTx(ctx, j.q, wait, j.s.options.LockTimeout, func(wait time.Duration) (bool, error) {
		return j.send(ctx, wait)
	})
}

// renew deletes the expired record of the key and claims the key again.
func (j *joined[Tx]) renew(ctx context.Context) (bool, error) {
	wait := min(j.p.wait, j.s.options.LockTimeout)
	return j.s.sql.claim.Bounded(ctx, j.q, wait, func() (bool, error) { return j.send(ctx, wait) })
}

func (j *joined[Tx]) send(ctx context.Context, wait time.Duration) (won bool, err error) {
	a, err := j.s.send(ctx, j.q, j.p, j.s.claiming(j.p.call, j.attempt, wait, 0))
	return err == nil && j.s.sql.claim.Won(a.Result), err
}

// run runs the function behind a savepoint, so that a rejection undoes the function's writes and
// keeps the claim.
func (j *joined[Tx]) run(ctx context.Context, body func() (storedResult, error)) (*record, Outcome, error) {
	// The name is unique. If two savepoints had the same name, the outer call would roll back to
	// the savepoint of the inner call.
	name := `holdfast_` + hex.EncodeToString(j.attempt)
	if _, err := (core.Stmt{Name: "savepoint", Text: `SAVEPOINT ` + name}).Exec(ctx, j.q); err != nil {
		return nil, 0, err
	}
	r := j.p.executing()
	var err error
	if j.similar != nil {
		err = j.similar.claimTx(ctx, j.q)
	}
	if err == nil {
		r.storedResult, err = body()
	}
	var rej *Rejection
	if err != nil && once.Decides(err, &rej) {
		if _, err := (core.Stmt{Name: "rollback to", Text: `ROLLBACK TO SAVEPOINT ` + name}).Exec(ctx, j.q); err != nil {
			return nil, 0, j.s.lost(err)
		}
		r.storedResult, err = j.s.options.encode(j.p.call, rejected, rej)
	}
	if err != nil {
		return nil, 0, err
	}
	// Release the savepoint. Otherwise each call in the transaction would add one more nested
	// savepoint.
	if _, err := (core.Stmt{Name: "release", Text: `RELEASE SAVEPOINT ` + name}).Exec(ctx, j.q); err != nil {
		return nil, 0, j.s.lost(err)
	}
	return r, Executed, j.finish(ctx, r.storedResult)
}

// finish writes the result. The transaction may continue afterwards.
func (j *joined[Tx]) finish(ctx context.Context, v storedResult) error {
	a := j.s.finishing(j.p.call, j.attempt, v).Run(ctx, j.q)
	switch {
	case a.Err != nil && (j.s.dialect().Classify(a.Err) == dialect.Gone || errors.Is(a.Err, sql.ErrTxDone)):
		return &holdfast.TxLostError{Err: a.Err}
	case a.Err != nil:
		return j.s.explain(a.Err)
	case a.Affected != 1:
		return &holdfast.TxLostError{}
	}
	return nil
}

// lost makes the error for a savepoint that is gone. The function has ended the transaction, or
// the server has.
func (s *Store[Tx]) lost(err error) error {
	if s.dialect().Classify(err) == dialect.Retry {
		return err
	}
	return &holdfast.TxLostError{Err: err}
}
