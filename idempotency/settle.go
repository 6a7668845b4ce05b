package idempotency

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// errLost: the claim found the key taken by a transaction that has committed.
var errLost = errors.New("idempotency: the key was taken meanwhile")

// funcError marks an error of the user's function: what it says of a commit or
// a claim is about another one.
type funcError struct{ err error }

func (e *funcError) Error() string { return e.err.Error() }
func (e *funcError) Unwrap() error { return e.err }

// course is one call on its way to a definite outcome.
type course struct {
	noWait   bool
	wait     time.Duration
	attempts int
	classify func(error) dialect.Class
	// disconnected tells "cannot ask the database" from its answers.
	disconnected func(error) bool
	// look says whether the outcome is there already.
	look func(ctx context.Context) (bool, error)
	// try is one transaction: claim, function, result, commit.
	try func(ctx context.Context) error
}

// settle looks, tries, and does both again while the outcome is open: another
// call holds the key, the engine rolled back, or a commit is unknown. An
// unknown commit is resolved by claiming again, which waits for the row of the
// transaction in doubt; only the look's finding a result, or a claim's own
// commit, ends it.
func (c *course) settle(ctx context.Context) (executed bool, err error) {
	start := time.Now()
	pause := core.NewBackoff()
	var unknown error
	for rolledBack := 0; ; {
		found, err := c.look(ctx)
		if found {
			return false, nil
		}
		if err == nil {
			if err = c.try(ctx); err == nil {
				return true, nil
			}
		}
		var atClaim *claimError
		var inFunc *funcError
		class := c.classify(err)
		waiting := false
		switch {
		case errors.As(err, &inFunc):
			err = inFunc.err
			if ctx.Err() != nil || class != dialect.Retry && class != dialect.Busy {
				return false, firstOf(unknown, err)
			}
			if rolledBack++; rolledBack >= c.attempts {
				return false, firstOf(unknown, &holdfast.RetryError{Attempts: rolledBack, Err: err})
			}
		case errors.Is(err, holdfast.ErrUnknown):
			unknown = err
		case ctx.Err() != nil:
			return false, firstOf(unknown, context.Cause(ctx))
		case errors.Is(err, errLost):
			waiting = true
		case errors.Is(err, holdfast.ErrTxLost):
			return false, firstOf(unknown, err)
		case errors.As(err, &atClaim) && class == dialect.Busy:
			if c.noWait {
				return false, firstOf(unknown, &InProgressError{Err: err})
			}
			waiting = true
		case class == dialect.Retry, class == dialect.Busy:
			if rolledBack++; rolledBack >= c.attempts {
				return false, firstOf(unknown, &holdfast.RetryError{Attempts: rolledBack, Err: err})
			}
		case unknown != nil && c.disconnected(err):
			// Ask again until the wait is over.
		default:
			return false, firstOf(unknown, err)
		}
		if waited := time.Since(start); (waiting || unknown != nil) && waited > c.wait {
			return false, firstOf(unknown, &InProgressError{Waited: waited, Err: err})
		}
		if ctx.Err() != nil || pause.Sleep(ctx) != nil {
			return false, firstOf(unknown, context.Cause(ctx))
		}
	}
}

// firstOf: once a commit is unknown, nothing short of its resolution replaces that.
func firstOf(unknown, err error) error {
	if unknown != nil {
		return unknown
	}
	return err
}
