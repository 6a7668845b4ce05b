package idempotency

import (
	"context"
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
// Replayed; T is stored as JSON, and a slice of bytes as it is (see also [Codec]
// and [Identified]).
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
func Do[Tx, T any](ctx context.Context, s *Store[Tx], op Op, fn func(ctx context.Context, tx Tx) (T, error)) (res Result[T], err error) {
	ctx, span := tell(ctx, s.access.Trace, "idempotency.do", op.Name)
	defer func() { span.End(err, func(err error) string { return outcomeOf(res.Outcome, err) }) }()
	c, err := s.check(op)
	if err != nil {
		return Result[T]{}, err
	}
	inner, err := enter(ctx, s.flights, c.hash)
	if err != nil {
		return Result[T]{}, err
	}
	body := func(tx Tx) (verdict, error) { return encode(inner, s, c, tx, fn) }

	p := patience{&c.prints, op.NoWait, c.wait, time.Now().Add(c.wait)}
	for {
		f, leads := s.flights.join(c.hash, &c.prints)
		if leads {
			r, outcome, err := s.lead(ctx, c, f, body)
			span.Attempts = c.attempts
			if err != nil {
				return Result[T]{}, err
			}
			return answer[T](s, c, r, outcome)
		}
		r, err := f.follow(ctx, p)
		if op.NoWait && errors.Is(err, ErrInProgress) {
			r, err = s.glance(ctx, c) // the leader may be a replay itself
		}
		if err != nil {
			return Result[T]{}, err
		}
		if r != nil {
			return answer[T](s, c, r, Replayed)
		}
	}
}

// lead runs c for itself and for the duplicates that follow.
func (s *Store[Tx]) lead(ctx context.Context, c *claim, f *flight[record], body func(Tx) (verdict, error)) (r *record, o Outcome, err error) {
	defer func() { s.flights.land(c.hash, f, r) }() // also when the function panics: r is nil then
	var found *record
	course := course{
		hunch: s.hunch, noWait: c.op.NoWait, wait: c.wait, attempts: s.options.Attempts,
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
	c.attempts = course.tries
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
func (s *Store[Tx]) try(ctx context.Context, c *claim, body func(Tx) (verdict, error)) (*record, error) {
	r, err := s.transact(ctx, c, body)
	var rej *Rejection
	if !errors.As(err, &rej) || ctx.Err() != nil {
		return r, err
	}
	no, err := s.options.verdict(c, rejected, rej)
	if err != nil {
		return nil, err
	}
	return s.transact(ctx, c, func(Tx) (verdict, error) { return no, nil })
}

func (s *Store[Tx]) transact(ctx context.Context, c *claim, body func(Tx) (verdict, error)) (*record, error) {
	bound := s.options.LockTimeout
	if c.op.NoWait {
		bound = noWaitBound
	}
	opts := core.TxOptions{
		Isolation: s.options.Isolation, LockTimeout: s.options.LockTimeout,
		FirstSets: s.dialect().Records.ClaimBounds,
		Last:      new(core.Bound), // see finishing
	}
	if !s.dialect().Capabilities.SeesClaims || c.expired {
		opts.LockTimeout = bound // before the function there are the claim's waits only
	}
	var verdictOf func(*core.Bound) (bool, error)
	if c.expired || s.lease != nil {
		opts.FirstSets = false // the expired record goes first, or the guard
	} else {
		opts.First, verdictOf = s.claiming(c, bound, s.options.LockTimeout)
	}
	r := &record{print: c.prints.own(), printVersion: c.prints.version}
	err := s.access.Attempt(ctx, opts, func(ctx context.Context, tx Tx, q core.Querier) (err error) {
		if err := s.guard(ctx, tx); err != nil {
			return err
		}
		var won bool
		if opts.First != nil {
			won, err = verdictOf(opts.First)
		} else {
			won, err = s.claim(ctx, q, c, bound, s.options.LockTimeout)
		}
		if err != nil {
			return err
		}
		if !won {
			return errLost
		}
		if r.verdict, err = body(tx); err != nil {
			return &funcError{err}
		}
		*opts.Last = s.finishing(c, r.verdict)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// noWaitBound is the wait that NoWait allows a claim on PostgreSQL and SQLite:
// long enough for the engine's own short locks, too short for a transaction.
const noWaitBound = 20 * time.Millisecond

// encode runs fn and makes its result the verdict. A result that has no way back
// must not be committed.
func encode[Tx, T any](ctx context.Context, s *Store[Tx], c *claim, tx Tx, fn func(context.Context, Tx) (T, error)) (verdict, error) {
	v, err := fn(ctx, tx)
	if err != nil {
		return verdict{}, err
	}
	out, err := s.options.verdict(c, succeeded, v)
	if err != nil {
		return verdict{}, err
	}
	var back T
	if err := s.options.decode(c, out, &back); err != nil {
		return verdict{}, fmt.Errorf("idempotency: the result has no way back: %w", err)
	}
	return out, nil
}

// answer gives c its part of a record.
func answer[T, Tx any](s *Store[Tx], c *claim, r *record, o Outcome) (res Result[T], err error) {
	if err := c.judge(r); err != nil {
		return res, err
	}
	if r.state == rejected {
		var rej Rejection
		if err := s.options.decode(c, r.verdict, &rej); err != nil {
			return res, err
		}
		return Result[T]{Outcome: o}, &rej
	}
	if err := s.options.decode(c, r.verdict, &res.Value); err != nil {
		return Result[T]{}, err
	}
	res.Outcome = o
	return res, nil
}
