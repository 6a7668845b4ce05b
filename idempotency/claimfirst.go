package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// claimFirst is the protocol of Do on MySQL and MariaDB, and at isolation levels on which a lock says
// nothing about what the transaction reads. Its model is internal/test/model/claimfirst.pml: claim inserts the
// record, for which other calls wait, and finish adds the result.
type claimFirst[Tx any] struct {
	stands core.Stmt // finds the record of an attempt
}

// stands is the text of claimFirst.stands.
const stands = `SELECT 1 FROM {records} WHERE owner = $0 AND key_hash = $1 AND attempt = $2`

// claimedRow is a transaction that has inserted the record of its key.
type claimedRow[Tx any] struct {
	access.OwnTx[Tx]
	*claimFirst[Tx]

	s       *Store[Tx]
	call    *call
	attempt []byte
}

func (f *claimFirst[Tx]) claim(ctx context.Context, s *Store[Tx], p *pending) (turn[Tx], error) {
	attempt := once.RandomID()
	tx, a, err := s.begin(ctx, p, s.claiming(p.call, attempt, s.lockWait(p), s.options.LockTimeout))
	if err != nil {
		return nil, err
	}
	if !s.sql.claim.Won(a.Result) {
		tx.Rollback()
		return nil, once.ErrTaken
	}
	return &claimedRow[Tx]{tx, f, s, p.call, attempt}, nil
}

// claiming returns the claim of an attempt: it inserts the record. wait bounds the wait for another
// session's claim, if the statement can do so; 0 is no wait. after is the lock timeout to set
// afterwards; 0 restores the previous one.
func (s *Store[Tx]) claiming(c *call, attempt []byte, wait, after time.Duration) core.Bound {
	return s.sql.claim.Bind(append(s.identified(c, c.args()), attempt), wait, after)
}

func (t *claimedRow[Tx]) finish(ctx context.Context, v storedResult) error {
	return t.Finish(ctx, t.s.finishing(t.call, t.attempt, v))
}

// doubt rolls back. The claim was inserted, so no other call had stored a record. If the function failed, doubt asks whether
// the record stands all the same: then the function had committed the transaction itself, and what it wrote
// before has no result. No question is needed where the transaction of a rejection follows, nor if the function has not run.
func (t *claimedRow[Tx]) doubt(ctx context.Context, err error) error {
	t.Rollback()
	var inFunc *once.FuncError
	var rej *Rejection
	if !errors.As(err, &inFunc) || errors.Is(err, trace.ErrAborted) || errors.Is(err, ErrSimilar) || ctx.Err() == nil && once.Decides(err, &rej) {
		return err
	}
	ctx, cancel := core.Cleanup(ctx)
	defer cancel()
	committed := false
	unread := t.s.access.OnConn(ctx, "", func(q core.Querier) (err error) {
		committed, err = t.stands.QueryRow(ctx, q, []any{new(int)}, t.call.args(t.attempt)...)
		return err
	})
	switch {
	case unread != nil:
		return &once.FuncError{Err: fmt.Errorf("idempotency: reading the record: %w, after the function's error: %w", unread, inFunc.Err)}
	case committed:
		return &holdfast.TxLostError{Err: inFunc.Err}
	}
	return err
}
