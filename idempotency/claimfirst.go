package idempotency

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
)

// claimFirst is the protocol of Do on MySQL and MariaDB, and at isolation levels on which a lock says
// nothing about what the transaction reads. Its model is internal/test/model/claimfirst.pml: claim inserts the
// record, for which other calls wait, and finish adds the result.
type claimFirst[Tx any] struct{}

// claimed is a transaction that has inserted the record of its key.
type claimedRow[Tx any] struct {
	access.OwnTx[Tx]

	s       *Store[Tx]
	call    *call
	attempt []byte
}

func (claimFirst[Tx]) claim(ctx context.Context, s *Store[Tx], p *pending) (turn[Tx], error) {
	attempt := once.RandomID()
	tx, a, err := s.begin(ctx, p, s.claiming(p.call, attempt, s.lockWait(p), s.options.LockTimeout))
	if err != nil {
		return nil, err
	}
	if !s.sql.claim.Won(a.Result) {
		tx.Rollback()
		return nil, once.ErrTaken
	}
	return &claimedRow[Tx]{tx, s, p.call, attempt}, nil
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

// doubt rolls back. The claim was inserted, so no other call had stored a record.
func (t *claimedRow[Tx]) doubt(_ context.Context, err error) error {
	t.Rollback()
	return err
}
