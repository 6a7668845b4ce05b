package once

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

// Retry runs one call until its outcome is definite. V is what is stored for it.
type Retry[V any] struct {
	ExpectNew *ExpectNew
	NoWait    bool
	Wait      time.Duration
	// Limit bounds the number of transactions that end without an outcome.
	Limit   int
	Dialect *dialect.Dialect
	// Read returns what is stored already; nil for nothing.
	Read func(ctx context.Context) (*V, error)
	// Try runs one transaction: claim, function, result, commit. It returns what it stored.
	Try func(ctx context.Context) (*V, error)
	// Admit, if not nil, returns the error that refuses a call with a new key. It is called before the
	// first Try.
	Admit func(ctx context.Context) error
	// Unstored wraps an error that the function returned when ctx had ended.
	Unstored func(err error) error

	unknown error // the commit whose outcome is unknown
	failed  int   // how often the engine rolled back, or the outcome was unknown

	// Tries counts the transactions.
	Tries int
	// Admitted reports that Admit has admitted the call.
	Admitted bool
}

// Run reads and tries, and repeats both while the outcome is open: another call holds the key, the
// engine rolled back, or a commit is unknown. To resolve an unknown commit, Run claims again,
// which waits for the row of the ambiguous transaction. Only a read that finds a result, or a
// commit of a new claim, resolves it. executed reports whether a Try of this call stored the value.
func (c *Retry[V]) Run(ctx context.Context) (stored *V, executed bool, err error) {
	start := time.Now()
	var pause *core.Backoff // most calls need none
	begun := start
	for reads := c.NoWait || !c.ExpectNew.Likely(); ; reads = true {
		stored, executed, end, err := c.attempt(ctx, reads)
		switch end {
		case ended:
			return stored, executed, err
		case lookFirst:
			continue
		}
		var inFunc *FuncError
		ran := errors.As(err, &inFunc)
		waiting, err := c.judge(ctx, err, end == tried)
		if err != nil {
			return nil, false, err
		}
		if waited := time.Since(start); (waiting || c.unknown != nil) && waited > c.Wait {
			return nil, false, FirstOf(c.unknown, &InProgressError{Waited: waited})
		}
		if pause == nil {
			pause = core.NewBackoff()
		}
		if ran {
			err = pause.SleepAfter(ctx, time.Since(begun))
		} else {
			err = pause.Sleep(ctx)
		}
		if err != nil || ctx.Err() != nil {
			return nil, false, FirstOf(c.unknown, context.Cause(ctx))
		}
		begun = time.Now()
	}
}

// attemptEnd says what follows an attempt.
type attemptEnd int

const (
	failedRead attemptEnd = iota // judge its error
	tried                        // judge the error of its transaction
	lookFirst                    // the record may exist: read it
	ended                        // the call ends
)

// attempt reads, if it is to, and runs one transaction unless it found a record.
func (c *Retry[V]) attempt(ctx context.Context, reads bool) (stored *V, executed bool, end attemptEnd, err error) {
	if reads {
		if stored, err = c.Read(ctx); stored != nil {
			c.ExpectNew.Was(false)
			return stored, false, ended, nil
		} else if err != nil {
			return nil, false, failedRead, err
		}
	}
	if c.Admit != nil && !c.Admitted {
		if err := c.Admit(ctx); err != nil && !reads {
			return nil, false, lookFirst, nil
		} else if err != nil {
			return nil, false, ended, err
		}
		c.Admitted = true
	}
	c.Tries++
	if stored, err = c.Try(ctx); err == nil {
		c.ExpectNew.Was(true)
		return stored, true, ended, nil
	}
	var inFunc *FuncError
	if !reads && !errors.As(err, &inFunc) && errors.Is(err, ErrTaken) {
		c.ExpectNew.Was(false)
		return nil, false, lookFirst, nil
	}
	return nil, false, tried, err
}

// judge returns the error that ends the call, or nil if the call continues. waiting reports that
// another call has the key. After a transaction the function may have run, so every error of that
// transaction counts.
func (c *Retry[V]) judge(ctx context.Context, err error, tried bool) (waiting bool, final error) {
	var atClaim *ClaimError
	var inFunc *FuncError
	class := c.Dialect.Classify(err)
	again := class == dialect.Retry || class == dialect.Busy || class == dialect.Unready
	switch {
	case errors.As(err, &inFunc):
		// The function ran, so the claim was won, and the unknown commit before it did nothing.
		c.unknown = nil
		if err = inFunc.Err; ctx.Err() != nil && errors.Is(context.Cause(ctx), err) {
			return false, err
		} else if ctx.Err() != nil {
			return false, c.Unstored(fmt.Errorf("%w: %w", context.Cause(ctx), err))
		} else if !again {
			return false, err
		}
		return false, c.again(err)
	case errors.Is(err, holdfast.ErrUnknown):
		c.unknown = err
		return false, c.again(err)
	case errors.Is(err, holdfast.ErrRowsOpen):
		c.unknown = nil // the function ran
		return false, err
	case errors.Is(err, holdfast.ErrPoolExhausted):
		return false, FirstOf(c.unknown, err)
	case errors.Is(err, holdfast.ErrTxLost): // also when ctx has ended: a part may be committed
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		return false, FirstOf(c.unknown, err)
	case ctx.Err() != nil:
		return false, FirstOf(c.unknown, context.Cause(ctx))
	case errors.Is(err, ErrTaken):
		return true, nil
	case errors.As(err, &atClaim) && class == dialect.Busy:
		if c.NoWait {
			return false, FirstOf(c.unknown, &InProgressError{Err: err})
		}
		return true, nil
	case c.unknown != nil && c.Dialect.Disconnected(err) && !tried:
		return false, nil // try again until the wait is over
	case again, c.unknown != nil && c.Dialect.Disconnected(err), errors.Is(err, holdfast.ErrRetry):
		return false, c.again(err)
	}
	return false, FirstOf(c.unknown, err)
}

// again counts a transaction that ended without an outcome.
func (c *Retry[V]) again(err error) error {
	if c.failed++; c.failed < c.Limit {
		return nil
	}
	var once *holdfast.RetryError
	if errors.As(err, &once) {
		err = once.Err
	}
	return FirstOf(c.unknown, &holdfast.RetryError{Attempts: c.failed, Err: err})
}

// enoughNew is the number of consecutive calls with a new key after which the next key is expected
// to be new.
const enoughNew = 8

// ExpectNew predicts whether the next key is new. For a new key, claiming without a read saves one
// round trip. For a known key, reading first saves two.
type ExpectNew struct{ inARow atomic.Int32 }

// Likely reports whether the next key is probably new.
func (h *ExpectNew) Likely() bool { return h.inARow.Load() >= enoughNew }

// Was records whether a key was new.
func (h *ExpectNew) Was(isNew bool) {
	switch {
	case !isNew:
		h.inARow.Store(0)
	case !h.Likely():
		h.inARow.Add(1)
	}
}
