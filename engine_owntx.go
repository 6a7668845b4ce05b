package holdfast

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// staleConns is the number of dead connections, such as those after a restart of the
// server, that are tried before an error is returned.
const staleConns = 64

// ownTx is one transaction of Holdfast's own on one pinned connection. It implements access.OwnTx. The fence is in
// claimfirst.pml, and its mark in fence.pml.
type ownTx[Tx any] struct {
	d       *DB[Tx]
	conn    core.Conn[Tx]
	pipe    core.Pipeline[Tx] // nil: each statement is a round trip
	tx      Tx
	q       core.Querier // see querier
	cancel  context.CancelFunc
	ctx     context.Context // ends up to core.CleanupTimeout after the caller's context
	allowed atomic.Bool     // Holdfast sends COMMIT, so the veto allows it
	lost    atomic.Bool     // the engine has rolled the transaction back
	unveto  func(driverConn any)
	undo    core.Stmt // restores the fence's setting
	marks   bool      // the fence's mark and check prove the transaction, not its last statement
	over    bool      // a commit or a rollback was asked for
	timely  bool      // COMMIT ends with ctx: see core.Timely
}

// attempt runs f in one transaction. It does not retry.
func (d *DB[Tx]) attempt(ctx context.Context, opts core.TxOptions, first *core.Bound, f func(ctx context.Context, tx Tx, q core.Querier, first core.Reply) error) error {
	s, answer, err := d.begin(ctx, opts, first, d.dialect.Fence.Mark != "")
	if err != nil {
		return err
	}
	within, end := core.Within(ctx)
	committed := false
	defer func() { end(committed) }()
	defer s.Rollback() // when f fails, panics, or ends its goroutine
	if err := f(within, s.tx, s.querier(), answer); err != nil {
		return err
	}
	err = s.finish(ctx, nil)
	committed = err == nil
	return err
}

// begin opens a transaction and runs first in it, if there is one. A dead connection is
// replaced by another one, because nothing has happened before the transaction is open.
func (d *DB[Tx]) begin(ctx context.Context, opts core.TxOptions, first *core.Bound, marks bool) (*ownTx[Tx], core.Reply, error) {
	for n := 1; ; n++ {
		conn, err := d.connect(ctx, d.dialect.Fence.Kept.Before != nil)
		if err != nil {
			return nil, core.Reply{}, err
		}
		life, cancel := withGrace(ctx, core.CleanupBound())
		s := &ownTx[Tx]{d: d, conn: d.composed(conn), marks: marks, ctx: life, cancel: cancel}
		answer, err := s.open(ctx, opts, first)
		if err == nil {
			t, ok := s.conn.(core.Timely)
			s.timely = d.dialect.Fence.Local || ok && t.Timely()
			return s, answer, nil
		}
		alive := true // a rollback released it
		if s.conn != nil {
			alive = d.alive(ctx, s.conn)
			s.release(s.conn, true)
		}
		if ctx.Err() != nil {
			return nil, core.Reply{}, context.Cause(ctx)
		}
		if n == staleConns || alive {
			return nil, core.Reply{}, fmt.Errorf("holdfast: beginning a transaction: %w", err)
		}
	}
}

// alive distinguishes a dead connection from a refused statement.
func (d *DB[Tx]) alive(ctx context.Context, conn core.Conn[Tx]) bool {
	var one int
	_, err := core.QueryRow(ctx, conn, []any{&one}, `SELECT 1`)
	return err == nil
}

// joinable returns an error if a caller's transaction has already ended.
func (d *DB[Tx]) joinable(ctx context.Context, q core.Querier) error {
	if begin := d.dialect.RowLocks.Begin; begin != "" {
		ctx := context.WithoutCancel(ctx) // the driver starts no goroutine, and both answer at once
		if _, err := (core.Stmt{Name: "alive", Text: begin}).Exec(ctx, q); err != nil {
			return nil //nolint:nilerr // it goes on
		}
		_, err := (core.Stmt{Name: "rollback", Text: `ROLLBACK`}).Exec(ctx, q)
		return &TxLostError{Err: err}
	}
	if len(d.dialect.Fence.Alive) == 0 {
		return nil
	}
	ctx = core.Asking(ctx)
	for _, text := range d.dialect.Fence.Alive {
		if _, err := (core.Stmt{Name: "alive", Text: text}).Exec(ctx, q); err != nil {
			if d.dialect.Classify(err) == dialect.Gone {
				return &TxLostError{Err: err}
			}
			return err
		}
	}
	return nil
}

// open begins the transaction with its fence. It returns the answer of first.
func (s *ownTx[Tx]) open(ctx context.Context, opts core.TxOptions, first *core.Bound) (answer core.Reply, err error) {
	fence := &s.d.dialect.Fence
	if kept, err := s.keep(ctx, opts); err != nil {
		return answer, err
	} else if !kept {
		if s.undo, err = fence.Setting.Change(ctx, explained{s.conn, s.d}, opts.LockTimeout); err != nil {
			return answer, err
		}
	}
	if fence.Veto != nil {
		err = s.conn.Raw(func(c any) (err error) {
			s.unveto, err = fence.Veto(c, func() bool { return !s.allowed.Load() }, func() { s.lost.Store(true) })
			return err
		})
		if err != nil {
			return answer, &UnsupportedError{Engine: s.d.product, Check: "driver", What: "fencing a lost transaction", Problem: err.Error()}
		}
	}
	if p, ok := s.conn.(core.Pipeline[Tx]); ok && p.Pipes() {
		s.pipe = p
	}
	if s.pipe != nil && first != nil {
		if timeout := fence.First; timeout != nil && !opts.FirstSets {
			opts.Setup = timeout(opts.LockTimeout)
		}
		return s.beginWith(ctx, opts, *first)
	}
	if err := s.begin(ctx, opts); err != nil {
		return answer, err
	}
	if s.marks && !s.spared() {
		if _, err := s.exec(ctx, s.querier(), "mark", fence.Mark); err != nil {
			_, _ = s.rollback(nil) // the caller has an error
			return answer, err
		}
	}
	if first != nil {
		answer = first.Run(ctx, s.querier())
	}
	return answer, nil
}

// begin begins the transaction with its lock timeout.
func (s *ownTx[Tx]) begin(ctx context.Context, opts core.TxOptions) error {
	var timeout core.Bound
	if first := s.d.dialect.Fence.First; first != nil && !opts.FirstSets {
		timeout.Stmt = core.Stmt{Name: "lock timeout", Text: first(opts.LockTimeout)}
		if s.pipe != nil {
			answer, err := s.beginWith(ctx, opts, timeout)
			return s.begun(answer, err)
		}
	}
	var err error
	if s.tx, err = s.conn.Begin(s.ctx, opts); err != nil { //nolint:contextcheck // the transaction's own, which outlives ctx
		return err
	}
	if timeout.Stmt.Text == "" {
		return nil
	}
	return s.begun(timeout.Run(ctx, s.querier()), nil)
}

// begun rolls back a transaction whose lock timeout was not set. err means that there is none.
func (s *ownTx[Tx]) begun(timeout core.Reply, err error) error {
	if err == nil && timeout.Err != nil {
		_, _ = s.rollback(nil) // the caller has an error
	}
	return errors.Join(err, timeout.Err)
}

// beginWith begins the transaction and runs its first statement in one round trip.
func (s *ownTx[Tx]) beginWith(ctx context.Context, opts core.TxOptions, first core.Bound) (answer core.Reply, err error) {
	core.Ran(first.Stmt.Name)
	s.tx, answer, err = s.pipe.BeginWith(ctx, s.ctx, opts, first)
	if err != nil {
		return answer, err
	}
	answer.Err = s.d.explain(answer.Err)
	return answer, nil
}

// querier runs statements in the transaction.
func (s *ownTx[Tx]) querier() core.Querier {
	if s.q == nil {
		s.q, _ = s.d.join(s.tx)
	}
	return s.q
}

// join returns a transaction as a Querier, with what compose has put together.
func (d *DB[Tx]) join(tx Tx) (core.Querier, error) {
	q, err := d.adapter.Join(tx)
	if err != nil {
		return nil, err
	}
	for _, wrap := range d.txs {
		q = wrap(q)
	}
	if b, can := q.(core.Batcher); can {
		return explainedBoth{explained{q, d}, b}, nil
	}
	return explained{q, d}, nil
}

// Tx returns the handle's transaction.
func (s *ownTx[Tx]) Tx() Tx { return s.tx }

// Exec runs a write in the transaction.
func (s *ownTx[Tx]) Exec(ctx context.Context, query string, args ...any) (core.Result, error) {
	return s.querier().Exec(ctx, query, args...)
}

// Query runs a query in the transaction.
func (s *ownTx[Tx]) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	return s.querier().Query(ctx, query, args...)
}

func (s *ownTx[Tx]) exec(ctx context.Context, q core.Querier, name, text string) (core.Result, error) {
	return core.Stmt{Name: name, Text: text}.Exec(ctx, q)
}

// withGrace returns a context that ends d after ctx has ended.
func withGrace(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if ctx.Done() == nil {
		return ctx, func() {}
	}
	graced, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			cancel(context.Cause(ctx))
		case <-graced.Done():
		}
	})
	return graced, func() { stop(); cancel(nil) }
}

func isAny(err error, targets ...error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}
