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

// lockFirst is the protocol of Do on PostgreSQL and SQLite, whose model is internal/test/model/lockfirst.pml: claim locks the
// key, which costs no write, and finish writes the whole record, once.
type lockFirst[Tx any] struct {
	// The locks of a call that waits for the key, and of one that does not, with their timeouts as arguments.
	wait, noWait core.Bound

	record core.Bound // it fails rather than write no row
	// before finds a record that was there before the lock. It is empty where the lock comes before every
	// read. unfinished writes the record of an operation whose outcome is unknown.
	before, unfinished core.Stmt
}

func newLockFirst[Tx any](compile func(name, text string) core.Stmt, records *dialect.Records, claim dialect.Claim, timeout time.Duration) protocol[Tx] {
	record := compile("records.finish", records.Record)
	return &lockFirst[Tx]{
		wait: claim.Reserve(nil, timeout, timeout), noWait: claim.Reserve(nil, 0, timeout),
		record: core.Bound{Stmt: record, OrFail: record},
		before: compile("records.before", records.Before), unfinished: compile("records.unfinished", records.Unfinished),
	}
}

// locked is a transaction that has locked its key.
type locked[Tx any] struct {
	access.OwnTx[Tx]
	*lockFirst[Tx]

	s           *Store[Tx]
	call        *call
	since       time.Time
	attempt     []byte
	transaction string // the database's id of it, if the engine has one
}

func (l *lockFirst[Tx]) claim(ctx context.Context, s *Store[Tx], p *pending) (turn[Tx], error) {
	since, lock := time.Now(), l.wait
	if p.noWait {
		lock = l.noWait
	}
	tx, a, err := s.begin(ctx, p, lock.With(p.args(lock.Args...)...))
	if err != nil {
		return nil, err
	}
	if !s.sql.claim.Reserved(a.Result) {
		tx.Rollback()
		return nil, once.ErrTaken
	}
	return &locked[Tx]{tx, l, s, p.call, since, once.RandomID(), a.Text}, nil
}

func (t *locked[Tx]) finish(ctx context.Context, v storedResult) error {
	return t.Finish(ctx, t.s.writing(t.call, t.record, t.attempt, v, t.since, t.transaction))
}

// doubt looks for a record that was there before the lock: the snapshot of the claim may be older than
// it. A record that another call has stored since changes nothing. After some errors the call reads the
// record anyway.
func (t *locked[Tx]) doubt(ctx context.Context, err error) error {
	var inFunc *once.FuncError
	var rej *Rejection
	switch {
	case t.before.Text == "":
		return err
	case once.Decides(err, &rej) && ctx.Err() == nil: // the claim that stores it looks
		return err
	case !errors.As(err, &inFunc) && !errors.Is(err, holdfast.ErrTxLost):
		return err
	}
	ctx, cancel := core.Cleanup(ctx)
	defer cancel()
	var one int
	var before bool
	unread := t.s.access.OnConn(ctx, "", func(q core.Querier) (err error) {
		before, err = t.before.QueryRow(ctx, q, []any{&one}, t.call.args(t.transaction)...)
		return err
	})
	switch {
	case before:
		return once.ErrTaken
	case inFunc == nil:
		// The function has ended the transaction. If it has committed, the operation is unknown.
		_, unwritten := t.unfinished.Exec(ctx, t.s.access.Pool, t.s.identified(t.call, t.call.args(t.attempt, t.transaction))...)
		return errors.Join(err, unwritten)
	case unread != nil:
		return fmt.Errorf("idempotency: reading the record: %w, after the function's error: %w", unread, inFunc.Err)
	}
	return err
}
