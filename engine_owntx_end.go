package holdfast

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// Finish runs last and commits.
func (s *ownTx[Tx]) Finish(ctx context.Context, last core.Bound) error { return s.finish(ctx, &last) }

// Rollback rolls back, unless the transaction has ended.
func (s *ownTx[Tx]) Rollback() {
	if !s.over {
		s.over = true
		_, _ = s.rollback(nil) // nothing was committed, regardless of its answer
	}
}

// RollbackThen rolls back, and runs look in the session.
func (s *ownTx[Tx]) RollbackThen(look func(q core.Querier)) (looked bool) {
	if !s.over {
		s.over = true
		looked, _ = s.rollback(look)
	}
	return looked
}

// finish commits, unless ctx has ended.
func (s *ownTx[Tx]) finish(ctx context.Context, last *core.Bound) error {
	if ctx.Err() != nil {
		s.Rollback()
		return context.Cause(ctx)
	}
	s.over = true
	return s.commit(last)
}

// commit ends the transaction, with its last statement if it has one, and returns nil or the
// error of one of the three outcomes.
func (s *ownTx[Tx]) commit(last *core.Bound) error {
	if s.pipe != nil && last != nil {
		return s.commitWith(*last)
	}
	if intact, err := s.prove(last); !intact {
		return s.unproved(err)
	}
	s.allowed.Store(true)
	conn := s.conn
	if s.timely {
		return s.outcome(true, conn.Commit(s.ctx, s.tx))
	}
	return s.outcome(core.Bounded(s.ctx, func() error {
		return conn.Commit(s.ctx, s.tx)
	}, func() { s.release(conn, true) }))
}

// commitWith runs the last statement and commits in one round trip.
func (s *ownTx[Tx]) commitWith(last core.Bound) error {
	core.Ran(last.Stmt.Name)
	answer, err := s.pipe.CommitWith(s.ctx, s.tx, last)
	if err == nil && answer.Err != nil {
		return s.unproved(answer.Err) // nothing was committed
	}
	return s.outcome(true, err)
}

// prove reports whether the transaction is still the one that began: by its last statement, by what the
// connection has seen, or by the fence's check (Check in fence.pml). err may say why it is not.
func (s *ownTx[Tx]) prove(last *core.Bound) (intact bool, err error) {
	switch {
	case s.lost.Load():
		return false, nil
	case last == nil && !s.marks:
		return true, nil
	case !s.valid():
		return false, driver.ErrBadConn
	case last == nil:
		if intact, again := s.intact(); intact || again != nil {
			return intact, again
		}
		_, err := s.exec(s.ctx, s.querier(), "check", s.d.dialect.Fence.Check)
		return err == nil, err
	}
	ctx := s.ctx
	if s.d.dialect.Fence.Local {
		ctx = context.WithoutCancel(ctx)
	}
	answer := last.Run(ctx, s.querier())
	return answer.Err == nil && answer.Affected == 1, answer.Err
}

// intact reports whether the connection has seen all that could have ended the transaction, and there was
// nothing: mark and check are round trips. again asks for another run, whose mark is set at its start.
func (s *ownTx[Tx]) intact() (intact bool, again error) {
	if k, can := s.conn.(core.Keeper); can {
		return k.Intact()
	}
	return false, nil
}

// outcome ends the transaction after a COMMIT was sent. err is its answer, or says why none came.
func (s *ownTx[Tx]) outcome(answered bool, err error) error {
	conn := s.conn
	s.conn = nil
	if !answered {
		return &UnknownError{Err: err}
	}
	if err == nil && s.undo.Text == "" {
		s.release(conn, false)
		return nil
	}
	if err == nil {
		ctx, cancel := s.cleanup()
		defer cancel()
		s.restore(ctx, conn)
		return nil
	}
	s.release(conn, true)
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
func (s *ownTx[Tx]) valid() bool {
	conn, invalid := s.conn, errors.New("the driver cannot send a statement")
	ask := func() error {
		return conn.Raw(func(c any) error {
			if v, can := c.(driver.Validator); can && !v.IsValid() {
				return invalid
			}
			return nil
		})
	}
	if s.timely {
		return !errors.Is(ask(), invalid)
	}
	answered, err := core.Bounded(s.ctx, ask, nil)
	return answered && !errors.Is(err, invalid)
}

// unproved rolls back a transaction that is not proven to be intact, and returns its error.
func (s *ownTx[Tx]) unproved(err error) error {
	_, ended := s.rollback(nil)
	d := s.d.dialect
	// In its mode "exec" pgx does not send the ROLLBACK either, and says why: the connection is
	// there. A lost one answers ErrBadConn again.
	busy := ended != nil && !errors.Is(ended, driver.ErrBadConn) && d.RolledBack(ended)
	sent := err
	switch err = s.d.explain(err); {
	case errors.Is(err, driver.ErrBadConn) && (ended == nil || busy):
		// The statement was not sent, and the connection works: database/sql has closed the
		// rows before it rolled back.
		return fmt.Errorf("%w: %w", ErrRowsOpen, sent)
	case err == nil, d.Untouched(err):
		return &TxLostError{}
	case d.Classify(err) == dialect.Gone, errors.Is(err, sql.ErrTxDone), d.Classify(err) == dialect.Duplicate: // the record was there
		return &TxLostError{Err: err}
	default:
		return err
	}
}

// rollback rolls back. Without an error the server has done so and the connection was usable. If the
// connection does not answer, it is closed after the driver's timeouts. look, if there is one, runs after it on
// a usable connection.
func (s *ownTx[Tx]) rollback(look func(q core.Querier)) (looked bool, err error) {
	conn := s.conn
	if conn == nil {
		return false, sql.ErrTxDone
	}
	s.conn = nil
	ctx, cancel := s.cleanup()
	defer cancel()
	usable := false
	answered, err := core.Bounded(ctx, func() error {
		err := conn.Rollback(ctx, s.tx)
		if usable = err == nil || errors.Is(err, sql.ErrTxDone); !usable {
			s.release(conn, true)
			return err
		}
		if look != nil {
			look(explained{conn, s.d})
		}
		s.restore(ctx, conn) // it waits if another rollback of the same transaction still does
		return err
	}, nil)
	return answered && usable && look != nil, err
}

// cleanup returns the context of what follows the transaction.
func (s *ownTx[Tx]) cleanup() (context.Context, context.CancelFunc) {
	if s.d.dialect.Fence.Local {
		return context.WithoutCancel(s.ctx), func() {}
	}
	return context.WithTimeout(s.ctx, core.CleanupBound())
}

// restore restores the setting that the fence changed. If that fails, it closes the
// connection.
func (s *ownTx[Tx]) restore(ctx context.Context, conn core.Conn[Tx]) {
	var err error
	if s.undo.Text != "" {
		_, err = s.undo.Exec(ctx, explained{conn, s.d})
	}
	s.release(conn, err != nil)
}

func (s *ownTx[Tx]) release(conn core.Conn[Tx], discard bool) {
	if s.unveto != nil {
		_ = conn.Raw(func(c any) error { s.unveto(c); return nil })
	}
	conn.Release(discard)
	s.cancel()
}
