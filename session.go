package holdfast

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

const (
	// CleanupTimeout bounds a rollback, the return of a connection, and the wait for the
	// answer to a COMMIT after the context has ended.
	CleanupTimeout = core.CleanupTimeout

	// staleConns is the number of dead connections, such as those after a restart of the
	// server, that are tried before an error is returned.
	staleConns = 64
)

// session is one transaction on one pinned connection.
type session[Tx any] struct {
	d       *DB[Tx]
	conn    core.Conn[Tx]
	tx      Tx
	q       core.Querier
	cancel  context.CancelFunc
	ctx     context.Context // ends up to CleanupTimeout after the caller's context
	allowed atomic.Bool     // Holdfast sends COMMIT, so the veto allows it
	unveto  func(driverConn any)
	undo    core.Stmt // restores the fence's setting
	marked  bool      // commit must run the fence's check
}

// attempt runs f in one transaction. It does not retry.
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
	within, end := core.Within(ctx)
	defer end()
	err = f(within, s.tx, s.q)
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

// begin opens a transaction. A dead connection is replaced by another one, because nothing has
// happened before the transaction is open.
func (d *DB[Tx]) begin(ctx context.Context, opts core.TxOptions) (*session[Tx], error) {
	for n := 1; ; n++ {
		conn, err := d.connect(ctx)
		if err != nil {
			return nil, err
		}
		s := newSession(ctx, d, conn)
		if err = s.open(ctx, opts); err == nil {
			return s, nil
		}
		alive := s.conn == nil || d.alive(ctx, s.conn) // open released it after a rollback, or it answers
		s.release(true)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if n == staleConns || alive {
			return nil, fmt.Errorf("holdfast: beginning a transaction: %w", err)
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
			return &UnsupportedError{Engine: s.d.product, Check: "driver", What: "fencing a lost transaction", Problem: err.Error()}
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

// beginWith begins the transaction and runs its first statement in one round trip. The
// duration counts for the statement.
func (s *session[Tx]) beginWith(ctx context.Context, p core.Pipeline[Tx], opts core.TxOptions) (err error) {
	start := time.Now()
	s.tx, err = p.BeginWith(ctx, opts, opts.First)
	s.d.piped(ctx, "begin", opts.First, time.Since(start), err)
	opts.First.Err = s.d.explain(opts.First.Err)
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

// commit ends the transaction, with its last statement if it has one, and returns nil or the
// error of one of the three outcomes.
func (s *session[Tx]) commit(last *core.Bound) error {
	run := func() error {
		return s.d.observe(s.ctx, "commit", func() error { return s.conn.Commit(s.ctx, s.tx) })
	}
	p, piped := s.conn.(core.Pipeline[Tx])
	piped = piped && last != nil
	switch {
	case !piped && (last != nil || s.marked) && !s.valid():
		return s.unproved(&core.Bound{Err: driver.ErrBadConn})
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
	case errors.Is(err, ErrRowsOpen):
		return err
	case errors.Is(err, sql.ErrTxDone), s.d.dialect.Classify(err) == dialect.Gone:
		return &TxLostError{Err: err}
	case s.d.dialect.RolledBack(err):
		return fmt.Errorf("holdfast: the commit was refused, nothing happened: %w", err)
	}
	return &UnknownError{Err: err}
}

// proved reports whether the last statement found the transaction intact.
func (s *session[Tx]) proved(last *core.Bound) bool {
	return last.Err == nil && last.Result.Affected == 1
}

// valid asks the driver whether it can send a statement. Without this check, go-sql-driver
// would close a connection with open rows, and the reason of the failure would be lost.
func (s *session[Tx]) valid() (ok bool) {
	ok = true
	_ = s.conn.Raw(func(c any) error {
		if v, can := c.(driver.Validator); can {
			ok = v.IsValid()
		}
		return nil
	})
	return ok
}

// unproved rolls back a transaction that is not proven to be intact, and returns its error.
func (s *session[Tx]) unproved(last *core.Bound) error {
	clean := s.rollback()
	d := s.d.dialect
	switch err := s.d.explain(last.Err); {
	case clean && errors.Is(err, driver.ErrBadConn):
		// The statement was not sent, and the connection works: database/sql has closed the
		// rows before it rolled back.
		return fmt.Errorf("%w: %w", ErrRowsOpen, err)
	case err == nil, d.Records.Untouched != "" && dialect.Code(err) == d.Records.Untouched:
		return &TxLostError{}
	case d.Classify(err) == dialect.Gone, errors.Is(err, sql.ErrTxDone):
		return &TxLostError{Err: err}
	default:
		return err
	}
}

// rollback rolls back, and reports whether the server has done so and the connection was
// usable.
func (s *session[Tx]) rollback() (clean bool) {
	if s.conn == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(s.ctx, CleanupTimeout)
	defer cancel()
	answered, err := s.bounded(ctx, func() error {
		return s.d.observe(ctx, "rollback", func() error { return s.conn.Rollback(ctx, s.tx) })
	})
	if !answered {
		return false
	}
	if err != nil && !errors.Is(err, sql.ErrTxDone) {
		s.release(true)
		return false
	}
	s.restore()
	return err == nil
}

// bounded runs the end of a transaction and waits for it while ctx lives. go-sql-driver takes
// no context for COMMIT and ROLLBACK. If no answer arrives, bounded leaves the connection to
// the driver's timeouts, and the connection is closed after them.
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
	// The driver may return an error soon, because the same context has ended.
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

// restore restores the setting that the fence changed. If that fails, it closes the
// connection.
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

// withGrace returns a context that ends d after ctx has ended.
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
