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

// doubt rolls back, and looks for a record that was there before the lock: the snapshot of the claim may be
// older than it. A record that another call has stored since changes nothing. It also asks whether the
// function had committed the transaction itself: then the operation is unknown, whatever the function
// returned.
func (t *locked[Tx]) doubt(ctx context.Context, err error) error {
	var inFunc *once.FuncError
	failed := errors.As(err, &inFunc)
	if t.before.Text == "" || !failed && !errors.Is(err, holdfast.ErrTxLost) {
		t.Rollback()
		return err
	}
	var own, saw seen
	looked := t.RollbackThen(func(q core.Querier) { own = t.look(ctx, q) })
	if looked {
		saw = own
	}
	ctx, cancel := core.Cleanup(ctx)
	defer cancel()
	if !looked || saw.err != nil { // its session is gone
		saw.err = t.s.access.OnConn(ctx, "", func(q core.Querier) error {
			saw = t.look(ctx, q)
			return saw.err
		})
		// After a crash, the server may have given the id of a transaction that wrote nothing to another one.
		saw.committed = 0
	}
	switch {
	case saw.before == 1:
		return once.ErrTaken
	case failed && saw.committed == 1:
		err = &holdfast.TxLostError{Err: inFunc.Err}
	case failed && saw.err != nil:
		return fmt.Errorf("idempotency: reading the record: %w, after the function's error: %w", saw.err, inFunc.Err)
	case failed:
		return err
	}
	_, unwritten := t.unfinished.Exec(ctx, t.s.access.Pool, t.s.identified(t.call, t.call.args(t.attempt, t.transaction))...)
	return errors.Join(err, unwritten)
}

// seen is what a look after the function says: whether a record was there before the lock, and whether the
// transaction is committed.
type seen struct {
	before, committed int
	err               error
}

func (t *locked[Tx]) look(ctx context.Context, q core.Querier) (s seen) {
	ctx, cancel := core.Cleanup(ctx)
	defer cancel()
	_, s.err = t.before.QueryRow(ctx, q, []any{&s.before, &s.committed}, t.call.args(t.transaction)...)
	return s
}
