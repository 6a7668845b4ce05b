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

// session is one transaction on one pinned connection. It implements access.Session.
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
	marks   bool      // the fence's mark and check prove the transaction, not its last statement
	over    bool      // a commit or a rollback was asked for
}

// attempt runs f in one transaction. It does not retry.
func (d *DB[Tx]) attempt(ctx context.Context, opts core.TxOptions, f func(ctx context.Context, tx Tx, q core.Querier) error) error {
	s, _, err := d.begin(ctx, opts, nil, d.dialect.Fence.Mark != "")
	if err != nil {
		return err
	}
	within, end := core.Within(ctx)
	defer end()
	defer s.Rollback() // when f fails, panics, or ends its goroutine
	if err := f(within, s.tx, s.q); err != nil {
		return err
	}
	return s.finish(ctx, nil)
}

// begin opens a transaction and runs first in it, if there is one. A dead connection is
// replaced by another one, because nothing has happened before the transaction is open.
func (d *DB[Tx]) begin(ctx context.Context, opts core.TxOptions, first *core.Bound, marks bool) (*session[Tx], core.Answer, error) {
	for n := 1; ; n++ {
		conn, err := d.connect(ctx)
		if err != nil {
			return nil, core.Answer{}, err
		}
		s := newSession(ctx, d, conn)
		s.marks = marks
		answer, err := s.open(ctx, opts, first)
		if err == nil {
			return s, answer, nil
		}
		alive := s.conn == nil || d.alive(ctx, s.conn) // open released it after a rollback, or it answers
		s.release(true)
		if ctx.Err() != nil {
			return nil, core.Answer{}, context.Cause(ctx)
		}
		if n == staleConns || alive {
			return nil, core.Answer{}, fmt.Errorf("holdfast: beginning a transaction: %w", err)
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

// open begins the transaction with its fence. It returns the answer of first.
func (s *session[Tx]) open(ctx context.Context, opts core.TxOptions, first *core.Bound) (answer core.Answer, err error) {
	fence := &s.d.dialect.Fence
	if s.undo, err = fence.Setting.Change(ctx, s.d.observed(s.conn), opts.LockTimeout); err != nil {
		return answer, err
	}
	if fence.Veto != nil {
		err = s.conn.Raw(func(c any) (err error) {
			s.unveto, err = fence.Veto(c, func() bool { return !s.allowed.Load() })
			return err
		})
		if err != nil {
			return answer, &UnsupportedError{Engine: s.d.product, Check: "driver", What: "fencing a lost transaction", Problem: err.Error()}
		}
	}
	if p, ok := s.conn.(core.Pipeline[Tx]); ok && first != nil && !first.Counts && opts.FirstSets {
		return s.beginWith(ctx, p, opts, *first)
	}
	err = s.d.observe(ctx, "begin", func() (err error) {
		s.tx, err = s.conn.Begin(s.ctx, opts)
		return err
	})
	if err != nil {
		return answer, err
	}
	s.join()
	if fence.First != nil && !opts.FirstSets {
		if _, err := s.exec(ctx, s.q, "lock timeout", fence.First(opts.LockTimeout)); err != nil {
			s.rollback()
			return answer, err
		}
	}
	if s.marks {
		if _, err := s.exec(ctx, s.q, "mark", fence.Mark); err != nil {
			s.rollback()
			return answer, err
		}
	}
	if first != nil {
		answer = first.Run(ctx, s.q)
	}
	return answer, nil
}

// beginWith begins the transaction and runs its first statement in one round trip. The
// duration counts for the statement.
func (s *session[Tx]) beginWith(ctx context.Context, p core.Pipeline[Tx], opts core.TxOptions, first core.Bound) (answer core.Answer, err error) {
	start := time.Now()
	s.tx, answer, err = p.BeginWith(ctx, opts, first)
	s.d.piped(ctx, "begin", first, answer, time.Since(start), err)
	if err != nil {
		return answer, err
	}
	answer.Err = s.d.explain(answer.Err)
	s.join()
	return answer, nil
}

func (s *session[Tx]) join() {
	q, _ := s.d.adapter.Join(s.tx)
	s.q = s.d.observed(q)
}

// Tx returns the handle's transaction.
func (s *session[Tx]) Tx() Tx { return s.tx }

// Exec runs a write in the transaction.
func (s *session[Tx]) Exec(ctx context.Context, query string, args ...any) (core.Result, error) {
	return s.q.Exec(ctx, query, args...)
}

// Query runs a query in the transaction.
func (s *session[Tx]) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	return s.q.Query(ctx, query, args...)
}

// Finish runs last and commits.
func (s *session[Tx]) Finish(ctx context.Context, last core.Bound) error { return s.finish(ctx, &last) }

// Rollback rolls back, unless the transaction has ended.
func (s *session[Tx]) Rollback() {
	if !s.over {
		s.over = true
		s.rollback()
	}
}

// finish commits, unless ctx has ended.
func (s *session[Tx]) finish(ctx context.Context, last *core.Bound) error {
	if ctx.Err() != nil {
		s.Rollback()
		return context.Cause(ctx)
	}
	s.over = true
	return s.commit(last)
}

func (s *session[Tx]) exec(ctx context.Context, q core.Querier, name, text string) (core.Result, error) {
	return core.Stmt{Name: name, Text: text}.Exec(ctx, q)
}

// commit ends the transaction, with its last statement if it has one, and returns nil or the
// error of one of the three outcomes.
func (s *session[Tx]) commit(last *core.Bound) error {
	if p, ok := s.conn.(core.Pipeline[Tx]); ok && last != nil {
		return s.commitWith(p, *last)
	}
	if intact, err := s.prove(last); !intact {
		return s.unproved(err)
	}
	s.allowed.Store(true)
	return s.outcome(s.bounded(s.ctx, func() error {
		return s.d.observe(s.ctx, "commit", func() error { return s.conn.Commit(s.ctx, s.tx) })
	}))
}

// commitWith runs the last statement and commits in one round trip.
func (s *session[Tx]) commitWith(p core.Pipeline[Tx], last core.Bound) error {
	s.allowed.Store(true)
	var answer core.Answer
	answered, err := s.bounded(s.ctx, func() (err error) {
		start := time.Now()
		answer, err = p.CommitWith(s.ctx, s.tx, last)
		s.d.piped(s.ctx, "commit", last, answer, time.Since(start), err)
		return err
	})
	if answered && err == nil && answer.Err != nil {
		return s.unproved(answer.Err) // nothing was committed
	}
	return s.outcome(answered, err)
}

// prove reports whether the transaction is still the one that began: by its last statement, or
// by the fence's check. err may say why it is not.
func (s *session[Tx]) prove(last *core.Bound) (intact bool, err error) {
	switch {
	case last == nil && !s.marks:
		return true, nil
	case !s.valid():
		return false, driver.ErrBadConn
	case last == nil:
		_, err := s.exec(s.ctx, s.q, "check", s.d.dialect.Fence.Check)
		return err == nil, err
	}
	answer := last.Run(s.ctx, s.q)
	return answer.Err == nil && answer.Affected == 1, answer.Err
}

// outcome ends the session after a COMMIT was sent. err is its answer, or says why none came.
func (s *session[Tx]) outcome(answered bool, err error) error {
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
func (s *session[Tx]) unproved(err error) error {
	clean := s.rollback()
	d := s.d.dialect
	switch err = s.d.explain(err); {
	case clean && errors.Is(err, driver.ErrBadConn):
		// The statement was not sent, and the connection works: database/sql has closed the
		// rows before it rolled back.
		return fmt.Errorf("%w: %w", ErrRowsOpen, err)
	case err == nil, d.Untouched(err):
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
