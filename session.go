package holdfast

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

const (
	// CleanupTimeout bounds a rollback, the return of a connection, and how
	// long a COMMIT that was sent is waited for once the context has ended.
	CleanupTimeout = 5 * time.Second

	// staleConns is how many dead connections of a pool are passed over, as
	// after a restart of the server, before an error is returned.
	staleConns = 64
)

// session is one transaction on one pinned connection.
type session[Tx any] struct {
	d       *DB[Tx]
	conn    core.Conn[Tx]
	tx      Tx
	q       core.Querier
	cancel  context.CancelFunc
	ctx     context.Context // outlives the caller's by CleanupTimeout
	allowed atomic.Bool     // COMMIT is ours
	unveto  func(driverConn any)
	undo    core.Stmt // puts back the fence's setting
	marked  bool      // the fence's check is due
}

// attempt runs f in one transaction, once.
func (d *DB[Tx]) attempt(ctx context.Context, opts core.TxOptions, f func(ctx context.Context, tx Tx, q core.Querier) error) error {
	s, err := d.begin(ctx, opts)
	if err != nil {
		return err
	}
	returned := false
	defer func() {
		if !returned { // f panicked, or ended its goroutine
			s.rollback()
		}
	}()
	err = f(ctx, s.tx, s.q)
	returned = true
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		s.rollback()
		return err
	}
	return s.commit(opts.Last)
}

// begin opens a transaction. Until it is open nothing was done, so a dead
// connection is passed over.
func (d *DB[Tx]) begin(ctx context.Context, opts core.TxOptions) (*session[Tx], error) {
	for n := 1; ; n++ {
		conn, err := d.adapter.Acquire(ctx)
		if err != nil {
			return nil, fmt.Errorf("holdfast: getting a connection: %w", err)
		}
		s := newSession(ctx, d, conn)
		if err = s.open(ctx, opts); err == nil {
			return s, nil
		}
		alive := s.conn == nil || d.alive(ctx, s.conn) // rolled back and given back, or asked
		s.release(true)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if n == staleConns || alive {
			return nil, fmt.Errorf("holdfast: beginning a transaction: %w", err)
		}
	}
}

// onConn runs f on a connection of the pool. A dead one, as after a restart of
// the server, is passed over: f must not mind to be run again. One on which a
// setting may still wait for its statement is closed.
func (d *DB[Tx]) onConn(ctx context.Context, before string, f func(q core.Querier) error) error {
	for n := 1; ; n++ {
		conn, err := d.adapter.Acquire(ctx)
		if err != nil {
			return fmt.Errorf("holdfast: getting a connection: %w", err)
		}
		q := d.observed(conn)
		if before != "" {
			_, err = core.Stmt{Name: "before", Text: before}.Exec(ctx, q)
		}
		if err == nil {
			err = f(q)
		}
		alive := err == nil || d.alive(ctx, conn)
		if unready := d.dialect.Classify(err) == dialect.Unready; unready {
			// It answers, but another connection may lead to another node.
			conn.Release(true)
			return &RetryError{Attempts: 1, Err: err}
		}
		conn.Release(!alive || err != nil && before != "")
		if alive || ctx.Err() != nil || n == staleConns {
			return err
		}
	}
}

// alive tells a dead connection from a statement that was refused.
func (d *DB[Tx]) alive(ctx context.Context, conn core.Conn[Tx]) bool {
	var one int
	_, err := core.QueryRow(ctx, conn, []any{&one}, `SELECT 1`)
	return err == nil
}

// joinable refuses a caller's transaction that has ended already.
func (d *DB[Tx]) joinable(ctx context.Context, q core.Querier) error {
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

func newSession[Tx any](ctx context.Context, d *DB[Tx], conn core.Conn[Tx]) *session[Tx] {
	s := &session[Tx]{d: d, conn: conn}
	s.ctx, s.cancel = withGrace(ctx, CleanupTimeout)
	return s
}

func (s *session[Tx]) open(ctx context.Context, opts core.TxOptions) error {
	fence := &s.d.dialect.Fence
	var err error
	if s.undo, err = fence.Setting.Change(ctx, s.d.observed(s.conn), opts.LockTimeout); err != nil {
		return err
	}
	if fence.Veto != nil {
		err = s.conn.Raw(func(c any) (err error) {
			s.unveto, err = fence.Veto(c, func() bool { return !s.allowed.Load() })
			return err
		})
		if err != nil {
			return &UnsupportedError{s.d.dialect.Name, "fencing a lost transaction", err.Error()}
		}
	}
	if p, ok := s.conn.(core.Pipeline[Tx]); ok && opts.First != nil && opts.FirstSets {
		return s.beginWith(ctx, p, opts)
	}
	err = s.d.observe(ctx, "begin", func() (err error) {
		s.tx, err = s.conn.Begin(s.ctx, opts)
		return err
	})
	if err != nil {
		return err
	}
	q, _ := s.d.adapter.Join(s.tx)
	s.q = s.d.observed(q)
	if fence.First != nil && !opts.FirstSets {
		if _, err := s.exec(ctx, s.q, "lock timeout", fence.First(opts.LockTimeout)); err != nil {
			s.rollback()
			return err
		}
	}
	if fence.Mark != "" && opts.Last == nil {
		if _, err := s.exec(ctx, s.q, "mark", fence.Mark); err != nil {
			s.rollback()
			return err
		}
		s.marked = true
	}
	if opts.First != nil {
		opts.First.Exec(ctx, s.q)
	}
	return nil
}

// beginWith begins with the first statement in one round trip, which counts for
// the statement.
func (s *session[Tx]) beginWith(ctx context.Context, p core.Pipeline[Tx], opts core.TxOptions) (err error) {
	start := time.Now()
	s.tx, err = p.BeginWith(ctx, opts, opts.First)
	s.d.piped(ctx, "begin", opts.First, time.Since(start), err)
	if err != nil {
		return err
	}
	q, _ := s.d.adapter.Join(s.tx)
	s.q = s.d.observed(q)
	return nil
}

func (s *session[Tx]) exec(ctx context.Context, q core.Querier, name, text string) (core.Result, error) {
	return core.Stmt{Name: name, Text: text}.Exec(ctx, q)
}

// commit ends the transaction, with its last statement if there is one, and says
// which of the three outcomes it had.
func (s *session[Tx]) commit(last *core.Bound) error {
	run := func() error {
		return s.d.observe(s.ctx, "commit", func() error { return s.conn.Commit(s.ctx, s.tx) })
	}
	p, piped := s.conn.(core.Pipeline[Tx])
	piped = piped && last != nil
	switch {
	case piped:
		run = func() error {
			start := time.Now()
			err := p.CommitWith(s.ctx, s.tx, last)
			s.d.piped(s.ctx, "commit", last, time.Since(start), err)
			return err
		}
	case last != nil:
		if last.Exec(s.ctx, s.q); !s.proved(last) {
			return s.unproved(last)
		}
	case s.marked:
		if _, err := s.exec(s.ctx, s.q, "check", s.d.dialect.Fence.Check); err != nil {
			return s.unproved(&core.Bound{Err: err})
		}
	}
	s.allowed.Store(true)
	answered, err := s.bounded(s.ctx, run)
	if piped && answered && err == nil && last.Err != nil {
		return s.unproved(last) // nothing was committed
	}
	if !answered {
		return &UnknownError{Err: err}
	}
	if err == nil {
		s.restore()
		return nil
	}
	s.release(true)
	switch {
	case errors.Is(err, sql.ErrTxDone), s.d.dialect.Classify(err) == dialect.Gone:
		return &TxLostError{Err: err}
	case s.d.dialect.RolledBack(err):
		return fmt.Errorf("holdfast: the commit was refused, nothing happened: %w", err)
	}
	return &UnknownError{Err: err}
}

// proved tells whether the transaction's last statement found it unharmed.
func (s *session[Tx]) proved(last *core.Bound) bool {
	return last.Err == nil && last.Result.Affected == 1
}

// unproved rolls back what does not end as it began.
func (s *session[Tx]) unproved(last *core.Bound) error {
	s.rollback()
	d := s.d.dialect
	switch err := last.Err; {
	case err == nil, d.Records.Untouched != "" && dialect.Code(err) == d.Records.Untouched:
		return &TxLostError{}
	case d.Classify(err) == dialect.Gone, errors.Is(err, sql.ErrTxDone):
		return &TxLostError{Err: err}
	default:
		return err
	}
}

func (s *session[Tx]) rollback() {
	if s.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, CleanupTimeout)
	defer cancel()
	answered, err := s.bounded(ctx, func() error {
		return s.d.observe(ctx, "rollback", func() error { return s.conn.Rollback(ctx, s.tx) })
	})
	if !answered {
		return
	}
	if err != nil && !errors.Is(err, sql.ErrTxDone) {
		s.release(true)
		return
	}
	s.restore()
}

// bounded runs the end of a transaction and waits for it while ctx lives.
// go-sql-driver takes no context for COMMIT and ROLLBACK: where the answer never
// comes, the connection is left to its driver's timeouts and closed after them.
func (s *session[Tx]) bounded(ctx context.Context, f func() error) (answered bool, err error) {
	const running, finished, abandoned = 0, 1, 2
	var state atomic.Int32
	answer := make(chan error, 1)
	go func() {
		answer <- f()
		if !state.CompareAndSwap(running, finished) {
			s.release(true)
		}
	}()
	select {
	case err := <-answer:
		return true, err
	case <-ctx.Done():
	}
	// The driver may have been told by the same context.
	late := time.NewTimer(100 * time.Millisecond)
	defer late.Stop()
	select {
	case err := <-answer:
		return true, err
	case <-late.C:
	}
	if !state.CompareAndSwap(running, abandoned) {
		return true, <-answer
	}
	return false, fmt.Errorf("no answer within %v of the end of the context: %w", CleanupTimeout, context.Cause(ctx))
}

// restore puts back what the fence changed, or closes the connection.
func (s *session[Tx]) restore() {
	if s.undo.Text == "" {
		s.release(false)
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, CleanupTimeout)
	defer cancel()
	_, err := s.undo.Exec(ctx, s.d.observed(s.conn))
	s.release(err != nil)
}

func (s *session[Tx]) release(discard bool) {
	if s.conn == nil {
		return
	}
	if s.unveto != nil {
		_ = s.conn.Raw(func(c any) error { s.unveto(c); return nil })
	}
	s.conn.Release(discard)
	s.conn = nil
	s.cancel()
}

// withGrace is a context that lives on for d after ctx has ended.
func withGrace(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
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
