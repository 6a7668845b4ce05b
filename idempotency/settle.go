package idempotency

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
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
	hunch    *hunch
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

	unknown    error // the commit in doubt
	rolledBack int   // how often the engine rolled back
	tries      int   // transactions
}

// settle looks, tries, and does both again while the outcome is open: another
// call holds the key, the engine rolled back, or a commit is unknown. An
// unknown commit is resolved by claiming again, which waits for the row of the
// transaction in doubt; only the look's finding a result, or a claim's own
// commit, ends it.
func (c *course) settle(ctx context.Context) (executed bool, err error) {
	start := time.Now()
	pause := core.NewBackoff()
	for looks := c.noWait || !c.hunch.isNew(); ; looks = true {
		var found bool
		var err error
		if looks {
			if found, err = c.look(ctx); found {
				c.hunch.was(false)
				return false, nil
			}
		}
		if err == nil {
			c.tries++
			if err = c.try(ctx); err == nil {
				c.hunch.was(true)
				return true, nil
			}
			if !looks && errors.Is(err, errLost) {
				c.hunch.was(false)
				continue // the record is there
			}
		}
		waiting, err := c.judge(ctx, err)
		if err != nil {
			return false, err
		}
		if waited := time.Since(start); (waiting || c.unknown != nil) && waited > c.wait {
			return false, firstOf(c.unknown, &InProgressError{Waited: waited})
		}
		if ctx.Err() != nil || pause.Sleep(ctx) != nil {
			return false, firstOf(c.unknown, context.Cause(ctx))
		}
	}
}

// judge returns the error that ends the call, or nil when it goes on; waiting
// says that another call has the key.
func (c *course) judge(ctx context.Context, err error) (waiting bool, final error) {
	var atClaim *claimError
	var inFunc *funcError
	class := c.classify(err)
	again := class == dialect.Retry || class == dialect.Busy || class == dialect.Unready
	switch {
	case errors.As(err, &inFunc):
		// It ran, so the claim was won: a commit in doubt before it did nothing.
		c.unknown = nil
		if err = inFunc.err; ctx.Err() != nil {
			return false, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		} else if !again {
			return false, err
		}
		return false, c.again(err)
	case errors.Is(err, holdfast.ErrUnknown):
		c.unknown = err
		return false, nil
	case ctx.Err() != nil:
		return false, firstOf(c.unknown, context.Cause(ctx))
	case errors.Is(err, errLost):
		return true, nil
	case errors.Is(err, holdfast.ErrTxLost):
		return false, firstOf(c.unknown, err)
	case errors.As(err, &atClaim) && class == dialect.Busy:
		if c.noWait {
			return false, firstOf(c.unknown, &InProgressError{Err: err})
		}
		return true, nil
	case c.unknown != nil && c.disconnected(err):
		return false, nil // ask again until the wait is over
	case again:
		return false, c.again(err)
	}
	return false, firstOf(c.unknown, err)
}

// again counts the times that the engine rolled back.
func (c *course) again(err error) error {
	if c.rolledBack++; c.rolledBack < c.attempts {
		return nil
	}
	return firstOf(c.unknown, &holdfast.RetryError{Attempts: c.rolledBack, Err: err})
}

// firstOf: once a commit is unknown, nothing short of its resolution replaces that.
func firstOf(unknown, err error) error {
	if unknown != nil {
		return unknown
	}
	return err
}

// enoughNew is how many calls in a row make it likely that the next has a new
// key as well.
const enoughNew = 8

// hunch is whether the next key is likely to be new. A call whose key is new
// saves a round trip when it claims at once; one whose key is not saves two
// when it looks first.
type hunch struct{ inARow atomic.Int32 }

func (h *hunch) isNew() bool { return h.inARow.Load() >= enoughNew }

func (h *hunch) was(isNew bool) {
	switch {
	case !isNew:
		h.inARow.Store(0)
	case !h.isNew():
		h.inARow.Add(1)
	}
}
