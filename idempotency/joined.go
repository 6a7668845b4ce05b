package idempotency

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"sync"
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
	point   *savepoint
	saved   bool // the claim has set point
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
	var travels bool
	j.point, travels = takeSavepoint()
	defer j.point.put()
	if _, can := j.q.(core.Batcher); can && !travels {
		j.q = struct{ core.Querier }{j.q}
	}
	// Claim before any read: a read would fix a snapshot, and the function would then read data
	// older than the claim.
	won, err := j.claim(ctx)
	if err != nil {
		return nil, 0, err
	}
	if !won {
		var r *record
		if r, j.p.expired, err = j.find(ctx); err != nil || r != nil {
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

// claim claims the key, and restores the transaction's lock timeout. The savepoint travels with it, if
// it can.
func (j *joined[Tx]) claim(ctx context.Context) (bool, error) {
	wait := j.p.wait
	if j.p.noWait {
		wait = 0
	}
	send := j.send
	if _, can := j.q.(core.Batcher); can {
		send = j.sendAndSave
	}
	return j.s.sql.claim.InTx(ctx, j.q, wait, j.s.options.LockTimeout, func(wait time.Duration) (bool, error) { return send(ctx, wait) })
}

func (j *joined[Tx]) sendAndSave(ctx context.Context, wait time.Duration) (won bool, err error) {
	a, saved := core.Both(ctx, j.q, j.s.claiming(j.p.call, j.attempt, wait, 0), j.point.set)
	if a.Err != nil {
		return false, j.s.unclaimed(j.p, a.Err)
	}
	j.saved = saved.Err == nil
	return j.s.sql.claim.Won(a.Result), saved.Err
}

// find reads the record that has the key, and releases a savepoint that a lost claim has set.
func (j *joined[Tx]) find(ctx context.Context) (r *record, expired bool, err error) {
	s := j.s
	if !j.saved {
		return s.find(ctx, j.q, &s.sql.lock, j.p.call)
	}
	j.saved = false
	r = new(record)
	released, a := core.Both(ctx, j.q, j.point.release, core.Bound{Stmt: s.sql.lock, Args: j.p.args(), Dest: r.dest()})
	return s.found(r, a.Found, cmp.Or(released.Err, a.Err))
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
	if !j.saved {
		if err := j.point.set.Run(ctx, j.q).Err; err != nil {
			return nil, 0, err
		}
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
		if err := j.point.back.Run(ctx, j.q).Err; err != nil {
			return nil, 0, j.s.lost(err)
		}
		r.storedResult, err = j.s.options.encode(j.p.call, rejected, rej)
	}
	if err != nil {
		return nil, 0, err
	}
	return r, Executed, j.finish(ctx, r.storedResult)
}

// finish writes the result. The transaction may continue afterwards, so the savepoint is released: otherwise each
// call would add one more nested savepoint.
func (j *joined[Tx]) finish(ctx context.Context, v storedResult) error {
	released, a := core.Both(ctx, j.q, j.point.release, j.s.finishing(j.p.call, j.attempt, v))
	switch {
	case released.Err != nil:
		return j.s.lost(released.Err)
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

// savepoint is one that no other call of this process has at the same time. If two calls in one
// transaction had the same, the outer one would roll back to that of the inner one.
type savepoint struct {
	set, back, release core.Bound
	taken              bool
}

// prepared is how many savepoints may travel with other statements: a driver keeps these prepared on each connection, and
// has room for some hundred.
const prepared = 32

var savepoints struct {
	sync.Mutex
	all []*savepoint
}

// takeSavepoint returns the first that is free.
func takeSavepoint() (p *savepoint, travels bool) {
	savepoints.Lock()
	defer savepoints.Unlock()
	n := slices.IndexFunc(savepoints.all, func(p *savepoint) bool { return !p.taken })
	if n < 0 {
		n = len(savepoints.all)
		name := `SAVEPOINT holdfast_` + strconv.Itoa(n)
		stmt := func(what, text string) core.Bound { return core.Bound{Stmt: core.Stmt{Name: what, Text: text}} }
		savepoints.all = append(savepoints.all, &savepoint{stmt("savepoint", name), stmt("rollback to", `ROLLBACK TO `+name), stmt("release", `RELEASE `+name), false})
	}
	p = savepoints.all[n]
	p.taken = true
	return p, n < prepared
}

// put gives p back, when its transaction does not have it any more.
func (p *savepoint) put() {
	savepoints.Lock()
	defer savepoints.Unlock()
	p.taken = false
}
