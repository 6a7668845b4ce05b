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
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// claimLast is the protocol of Do with Options.ClaimLast on MySQL and MariaDB, whose model is Last in
// claimlast.pml: nothing is claimed before the function, and finish inserts the whole record.
type claimLast[Tx any] struct {
	first  claimFirst[Tx]
	record core.Bound
}

func newClaimLast[Tx any](compile func(name, text string) core.Stmt, records *dialect.Records) protocol[Tx] {
	record := compile("records.finish", records.Record)
	return &claimLast[Tx]{record: core.Bound{Stmt: record, OrFail: record}}
}

// unclaimedRow is a transaction that has claimed nothing yet.
type unclaimedRow[Tx any] struct {
	access.OwnTx[Tx]
	*claimLast[Tx]

	s       *Store[Tx]
	call    *call
	since   time.Time
	attempt []byte
}

// claim claims nothing. The insert of finish does not replace an expired record, so the key of one is
// claimed first. So is the key of a call with an intent: all calls lock their key before their intent.
func (l *claimLast[Tx]) claim(ctx context.Context, s *Store[Tx], p *pending) (turn[Tx], error) {
	if p.expired || p.similar != nil {
		return l.first.claim(ctx, s, p)
	}
	opts, since := s.transaction(p), time.Now()
	opts.Sealed = true
	tx, _, err := s.access.Begin(ctx, opts, nil)
	if err != nil {
		return nil, err
	}
	if s.lease != nil {
		if err := s.guard(ctx, tx.Tx()); err != nil {
			tx.Rollback()
			return nil, err
		}
	}
	return &unclaimedRow[Tx]{tx, l, s, p.call, since, once.RandomID()}, nil
}

func (t *unclaimedRow[Tx]) finish(ctx context.Context, v storedResult) error {
	return t.Finish(ctx, t.s.writing(t.call, t.record, t.attempt, v, t.since, ""))
}

// doubt looks for a record that another call has stored while this one ran, or against which the insert
// has lost. The locking read waits for a record whose COMMIT is on its way. So an err that is returned as
// it is also says that an earlier COMMIT of this call did nothing.
func (t *unclaimedRow[Tx]) doubt(ctx context.Context, err error) error {
	var inFunc *once.FuncError
	var rej *Rejection
	ran := errors.As(err, &inFunc)
	switch {
	case once.Decides(err, &rej) && ctx.Err() == nil: // the insert that stores it looks
		return err
	case errors.Is(err, holdfast.ErrUnknown):
		return err
	case errors.Is(err, holdfast.ErrTxLost) && !ran && t.s.dialect().Classify(err) == dialect.Duplicate:
		return once.ErrTaken
	case !ran && t.s.dialect().Classify(err) == dialect.Busy: // the insert waited for another call's row
		return &once.ClaimError{Err: err}
	}
	ctx, cancel := core.Cleanup(ctx)
	defer cancel()
	var r record
	var found bool
	unread := t.s.access.OnConn(ctx, "", func(q core.Querier) (err error) {
		found, err = t.s.sql.lock.QueryRow(ctx, q, r.dest(), t.call.args()...)
		return err
	})
	switch {
	case found && unread == nil && r.keyExpired == 0:
		return once.ErrTaken
	case unread == nil:
		return err
	case ran:
		err = inFunc.Err
	}
	return fmt.Errorf("idempotency: reading the record: %w, after the error: %w", unread, err)
}
