package idempotency

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// protocol makes the effects of a function and the record of its key one transaction. New chooses the
// protocol of Do; each has a file, and a model in internal/test/model whose steps have the same names:
//
//	lockFirst   lockfirst.pml              PostgreSQL, SQLite: lock, function, record
//	claimFirst  claimfirst.pml             MySQL, MariaDB: claimed record, function, result
//
// DoTx is the protocol of a caller's transaction: it claims first on every engine (joined, in both models).
type protocol[Tx any] interface {
	// claim begins a transaction that has the key of p. It returns once.ErrTaken if another call has it,
	// and a *once.ClaimError if the claim failed.
	claim(ctx context.Context, s *Store[Tx], p *pending) (turn[Tx], error)
}

// turn is an open transaction that has its key.
type turn[Tx any] interface {
	access.OwnTx[Tx]
	// finish writes the record with its result, and commits.
	finish(ctx context.Context, v storedResult) error
	// doubt rolls back, and decides whether err, with which the function or finish failed, counts. If another call
	// had stored the record, the function ran for nothing and doubt returns once.ErrTaken.
	doubt(ctx context.Context, err error) error
}

// work is what a transaction of Do does between claim and finish.
type work[Tx any] func(ctx context.Context, tx access.OwnTx[Tx]) (storedResult, error)

// transact runs one transaction: claim, function, record and COMMIT.
func (s *Store[Tx]) transact(ctx context.Context, p *pending, w work[Tx]) (r *record, err error) {
	t, err := s.protocol.claim(ctx, s, p)
	if err != nil {
		return nil, err
	}
	err = &once.FuncError{Err: trace.ErrAborted} // if the function panics or ends its goroutine
	defer func() {
		if err != nil {
			r, err = nil, t.doubt(ctx, err)
		}
	}()
	r = p.executing()
	if r.storedResult, err = w(ctx, t); err == nil && ctx.Err() != nil {
		err = &once.FuncError{Err: context.Cause(ctx)}
	} else if err == nil {
		err = t.finish(ctx, r.storedResult)
	}
	return r, err
}

// begin begins a transaction with a claim as its first statement, and returns the claim's answer. The
// guard of a lease comes before it, and what an earlier attempt makes necessary.
func (s *Store[Tx]) begin(ctx context.Context, p *pending, claim core.Bound) (tx access.OwnTx[Tx], a core.Reply, err error) {
	opts := s.transaction(p)
	if s.lease != nil || p.expired || p.watch != nil && p.watch.Due(s.options.LockTimeout) {
		return s.beginLate(ctx, p, opts, claim)
	}
	opts.FirstSets = true
	tx, a, err = s.access.Begin(ctx, opts, &claim)
	if err == nil && a.Err != nil {
		tx.Rollback()
		err = s.unclaimed(p, a.Err)
	}
	return tx, a, err
}

// beginLate begins a transaction whose claim is not its first statement.
func (s *Store[Tx]) beginLate(ctx context.Context, p *pending, opts core.TxOptions, claim core.Bound) (tx access.OwnTx[Tx], a core.Reply, err error) {
	if p.expired { // its delete waits, too
		opts.LockTimeout = s.sql.claim.LockTimeout(s.lockWait(p), s.options.LockTimeout, true)
	}
	if tx, _, err = s.access.Begin(ctx, opts, nil); err != nil {
		return nil, a, err
	}
	claims := false
	defer func() {
		if !claims {
			tx.Rollback()
		}
	}()
	if s.lease != nil {
		err = s.guard(ctx, tx.Tx())
	}
	if err == nil {
		a, err = s.send(ctx, tx, p, claim)
	}
	claims = err == nil
	return tx, a, err
}

// send sends a claim in a transaction that runs. An expired record is deleted first.
func (s *Store[Tx]) send(ctx context.Context, q core.Querier, p *pending, claim core.Bound) (a core.Reply, err error) {
	if p.expired {
		if _, err := s.sql.renew.Exec(ctx, q, p.args()...); err != nil {
			return a, &once.ClaimError{Err: s.explain(err)}
		}
	}
	if p.watch == nil {
		a = claim.Run(ctx, q)
	} else if err = p.watch.During(ctx, q, s.options.LockTimeout, func() error {
		a = claim.Run(ctx, q)
		return a.Err
	}); a.Err == nil {
		a.Err = err
	}
	if a.Err != nil {
		return a, s.unclaimed(p, a.Err)
	}
	return a, nil
}

// unclaimed is the error of a claim. After a wait that has ended without the key, p may look for its holder.
func (s *Store[Tx]) unclaimed(p *pending, err error) error {
	if p.watch == nil && !p.noWait && s.sql.holders.Text == "" {
		w := s.blockers.Watch(p.deadline)
		p.watch = &w
	}
	if p.watch != nil {
		p.watch.Ended(err)
	}
	return &once.ClaimError{Err: s.explain(err)}
}

// txOptions are the settings of the transactions of Do that wait for a key, and of those with NoWait.
type txOptions struct{ wait, noWait core.TxOptions }

func txOptionsOf(claim dialect.Claim, o *Options) txOptions {
	of := func(wait time.Duration) core.TxOptions {
		return core.TxOptions{Isolation: o.Isolation, LockTimeout: claim.LockTimeout(wait, o.LockTimeout, false)}
	}
	return txOptions{of(o.LockTimeout), of(0)}
}

// transaction returns the settings of a transaction that waits for the key of p.
func (s *Store[Tx]) transaction(p *pending) core.TxOptions {
	if p.noWait {
		return s.tx.noWait
	}
	return s.tx.wait
}

// lockWait bounds each wait of a transaction for the key of p; 0 is no wait.
func (s *Store[Tx]) lockWait(p *pending) time.Duration {
	if p.noWait {
		return 0
	}
	return s.options.LockTimeout
}
