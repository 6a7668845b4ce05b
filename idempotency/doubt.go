package idempotency

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// doubt returns ErrTaken if err comes from a function that ran in vain, because the record was there
// before it, and err otherwise. A record that another call has stored since changes nothing. Errors
// after which the call reads the record anyway are returned as they are.
func (s *Store[Tx]) doubt(ctx context.Context, c *call, err error) error {
	var inFunc *once.FuncError
	var rej *Rejection
	switch {
	case once.Decides(err, &rej) && ctx.Err() == nil: // the claim that stores it looks
		return err
	case !errors.As(err, &inFunc) && !errors.Is(err, holdfast.ErrTxLost):
		return err
	}
	ctx, cancel := core.Cleanup(ctx)
	defer cancel()
	var one int
	var before bool
	unread := s.access.OnConn(ctx, "", func(q core.Querier) (err error) {
		before, err = s.sql.before.QueryRow(ctx, q, []any{&one}, c.args(c.transaction)...)
		return err
	})
	switch {
	case before:
		return once.ErrTaken
	case inFunc == nil:
		// The function has ended the transaction. If it has committed, the operation is unknown.
		_, unwritten := s.sql.unfinished.Exec(ctx, s.access.Pool, s.identified(c, c.args(c.attempt, c.transaction))...)
		return errors.Join(err, unwritten)
	case unread != nil:
		return fmt.Errorf("idempotency: reading the record: %w, after the function's error: %w", unread, inFunc.Err)
	}
	return err
}

// doubtLast returns ErrTaken if another call has stored the record while this one ran, or if the insert
// lost against it, and err otherwise. The locking read waits for a record whose COMMIT is on its way. So
// an err that is returned as it is also says that an earlier COMMIT of this call did nothing.
func (s *Store[Tx]) doubtLast(ctx context.Context, c *call, err error) error {
	var inFunc *once.FuncError
	var rej *Rejection
	ran := errors.As(err, &inFunc)
	switch {
	case once.Decides(err, &rej) && ctx.Err() == nil: // the insert that stores it looks
		return err
	case errors.Is(err, holdfast.ErrUnknown):
		return err
	case errors.Is(err, holdfast.ErrTxLost) && !ran && s.dialect().Classify(err) == dialect.Duplicate:
		return once.ErrTaken
	case !ran && s.dialect().Classify(err) == dialect.Busy: // the insert waited for another call's row
		return &once.ClaimError{Err: err}
	}
	ctx, cancel := core.Cleanup(ctx)
	defer cancel()
	var r record
	var found bool
	unread := s.access.OnConn(ctx, "", func(q core.Querier) (err error) {
		found, err = s.sql.lock.QueryRow(ctx, q, r.dest(), c.args()...)
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
