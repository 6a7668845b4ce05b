package idempotency

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Outcome says whether this call did the work.
type Outcome int

// What a call with a definite answer did.
const (
	// Executed: the function ran in this call, and its commit is certain.
	Executed Outcome = iota + 1
	// Replayed: the answer is that of an earlier call.
	Replayed
)

func (o Outcome) String() string {
	switch o {
	case Executed:
		return "executed"
	case Replayed:
		return "replayed"
	}
	return "none"
}

// Result is the answer of an operation.
type Result[T any] struct {
	Value T
	// Outcome is set for every definite verdict, a *Rejection included.
	Outcome Outcome
}

// Do runs fn once for op, in a transaction that Do opens and commits: claim,
// fn, result, COMMIT. The claim's uncommitted row is the lock, so a crash
// leaves nothing behind. A duplicate gets the stored result, with Outcome
// Replayed; T is stored as JSON.
//
// fn receives the native transaction and a context. It may run more than once
// (the engine may roll back, or a commit may have to be resolved), so it must
// have effects in the database only, through tx only. It must not end tx, and
// must check the error of each statement. An error of Reject is final and
// stored; any other rolls everything back and leaves the key free.
//
// Errors: *[Rejection], [ErrInProgress], [ErrMismatch], [ErrExpired],
// [ErrUnknown], [ErrNested], [holdfast.ErrRetry], [holdfast.ErrTxLost],
// [holdfast.ErrInvalid], [holdfast.ErrSchema], ctx's, fn's own.
func Do[Tx, T any](ctx context.Context, s *Store[Tx], op Op, fn func(ctx context.Context, tx Tx) (T, error)) (Result[T], error) {
	c, err := s.options.check(op)
	if err != nil {
		return Result[T]{}, err
	}
	inner, err := enter(ctx, s, c.hash)
	if err != nil {
		return Result[T]{}, err
	}
	body := func(tx Tx) ([]byte, error) { return encode(inner, s.options.MaxResult, tx, fn) }

	p := patience{c.print, op.NoWait, c.wait, time.Now().Add(c.wait)}
	for {
		f, leads := s.flights.join(c.hash, c.print)
		if leads {
			r, outcome, err := s.lead(ctx, c, f, body)
			if err != nil {
				return Result[T]{}, err
			}
			return answer[T](c, r, outcome)
		}
		r, err := f.follow(ctx, p)
		if op.NoWait && errors.Is(err, ErrInProgress) {
			// The leader may be a replay itself.
			if r, err = s.look(ctx, s.access.Pool, c); r == nil && err == nil {
				err = &InProgressError{}
			}
		}
		if err != nil {
			return Result[T]{}, err
		}
		if r != nil {
			return answer[T](c, r, Replayed)
		}
	}
}

// lead runs c for itself and for the duplicates that follow.
func (s *Store[Tx]) lead(ctx context.Context, c *claim, f *flight[record], body func(Tx) ([]byte, error)) (r *record, o Outcome, err error) {
	defer func() { s.flights.land(c.hash, f, r) }() // also when the function panics: r is nil then
	var found *record
	course := course{
		noWait: c.op.NoWait, wait: c.wait, attempts: s.options.Attempts,
		classify: s.dialect().Classify, disconnected: s.dialect().Disconnected,
	}
	course.look = func(ctx context.Context) (bool, error) {
		err := s.access.OnConn(ctx, "", func(q core.Querier) (err error) {
			found, err = s.look(ctx, q, c)
			return err
		})
		if err != nil || found != nil {
			return found != nil, err
		}
		if c.op.NoWait {
			busy, err := s.inFlight(ctx, c)
			if busy {
				err = &InProgressError{}
			}
			return false, err
		}
		return false, nil
	}
	course.try = func(ctx context.Context) error {
		var err error
		found, err = s.try(ctx, c, body)
		return err
	}
	executed, err := course.settle(ctx)
	if err != nil {
		return nil, 0, err
	}
	if executed {
		return found, Executed, nil
	}
	return found, Replayed, nil
}

// try is one transaction. A final rejection rolls back and is stored by a
// second one, which another call may get ahead of: then that call's verdict stands.
func (s *Store[Tx]) try(ctx context.Context, c *claim, body func(Tx) ([]byte, error)) (*record, error) {
	r, err := s.transact(ctx, c, func(tx Tx) (int, []byte, error) {
		result, err := body(tx)
		return succeeded, result, err
	})
	var rej *Rejection
	if !errors.As(err, &rej) || ctx.Err() != nil {
		return r, err
	}
	verdict, err := json.Marshal(rej)
	if err != nil {
		return nil, fmt.Errorf("idempotency: storing a rejection: %w", err)
	}
	return s.transact(ctx, c, func(Tx) (int, []byte, error) { return rejected, verdict, nil })
}

func (s *Store[Tx]) transact(ctx context.Context, c *claim, body func(Tx) (int, []byte, error)) (*record, error) {
	bound := s.options.LockTimeout
	if c.op.NoWait {
		bound = noWaitBound
	}
	opts := core.TxOptions{
		Isolation: s.options.Isolation, LockTimeout: s.options.LockTimeout,
		FirstSets: s.dialect().Records.ClaimBounds,
	}
	if !s.dialect().Capabilities.SeesClaims || c.expired {
		opts.LockTimeout = bound // before the function there are the claim's waits only
	}
	if c.expired {
		opts.FirstSets = false // the expired record goes first
	}
	r := &record{print: c.print, printVersion: fingerprintVersion}
	err := s.access.Attempt(ctx, opts, func(ctx context.Context, tx Tx, q core.Querier) error {
		won, err := s.claim(ctx, q, c, bound, s.options.LockTimeout)
		if err != nil {
			return err
		}
		if !won {
			return errLost
		}
		if r.state, r.result, err = body(tx); err != nil {
			return &funcError{err}
		}
		return s.finish(ctx, q, c, r.state, r.result)
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// noWaitBound is the wait that NoWait allows a claim on PostgreSQL and SQLite:
// long enough for the engine's own short locks, too short for a transaction.
const noWaitBound = 20 * time.Millisecond

func encode[Tx, T any](ctx context.Context, limit int, tx Tx, fn func(context.Context, Tx) (T, error)) ([]byte, error) {
	v, err := fn(ctx, tx)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("idempotency: the result has no JSON form: %w", err)
	}
	var back T
	if err := json.Unmarshal(b, &back); err != nil {
		return nil, fmt.Errorf("idempotency: the result has no way back from JSON: %w", err)
	}
	if len(b) > limit {
		return nil, invalid("result", fmt.Sprintf("has %d bytes as JSON, Options.MaxResult is %d: store an id and read the rest by it", len(b), limit))
	}
	return b, nil
}

// answer gives c its part of a record.
func answer[T any](c *claim, r *record, o Outcome) (Result[T], error) {
	err := c.judge(r)
	var rej *Rejection
	if errors.As(err, &rej) {
		return Result[T]{Outcome: o}, err
	}
	if err != nil {
		return Result[T]{}, err
	}
	res := Result[T]{Outcome: o}
	if err := json.Unmarshal(r.result, &res.Value); err != nil {
		return Result[T]{}, fmt.Errorf("idempotency: the stored result does not fit %T: %w", res.Value, err)
	}
	return res, nil
}
