package idempotency

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// Outcome says whether this call ran the function or replayed a stored result.
type Outcome int

// The outcomes of a call with a definite result.
const (
	// Executed: the function ran in this call, and its commit is certain.
	Executed Outcome = iota + 1
	// Replayed: the result was stored by an earlier call.
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

// Result is the result of an operation, with its Outcome.
type Result[T any] struct {
	Value T
	// Outcome is set for every definite result, including a *Rejection.
	Outcome Outcome
}

// Do runs fn once for op, in a transaction that Do opens and commits: claim, fn, result, COMMIT.
// The claim is an uncommitted row, or a lock of the transaction on PostgreSQL and SQLite, so a crash leaves
// nothing behind. A duplicate gets the stored result, with Outcome Replayed. T is stored as JSON; a
// slice of bytes is stored unchanged (see also [Codec] and [Identified]). The caller too gets the value
// as it decodes: a number in an interface is a json.Number. A result that JSON does not keep, such as
// text that is not UTF-8, is [holdfast.ErrInvalid], and everything is rolled back.
//
// fn receives the native transaction and a context. It may run more than once (the engine may roll
// back, or Do may have to resolve a commit), so it must have effects in the database only, and
// through tx only. It must not end tx, it must check the error of each statement, and it must
// close its rows. An error of Reject is final and is stored. Any other error rolls everything back
// and leaves the key free.
//
// Errors: *[Rejection], [ErrInProgress], [ErrMismatch], [ErrExpired], [ErrUnknown], [ErrNested],
// [ErrSimilar], [ErrTooMany], [holdfast.ErrRetry], [holdfast.ErrTxLost], [holdfast.ErrRowsOpen], [holdfast.ErrReadOnly],
// [holdfast.ErrDenied], [holdfast.ErrInvalid], [holdfast.ErrSchema], errors of ctx, errors of fn;
// an *[InnerError] if fn failed with an outcome of another operation.
func Do[T, Tx any](ctx context.Context, s *Store[Tx], op Op, fn func(ctx context.Context, tx Tx) (T, error)) (res Result[T], err error) {
	ctx, span := once.StartSpan(ctx, s.access.Trace, "idempotency.do", op.Name)
	defer func() { span.End(err, func(err error) string { return outcomeOf(res.Outcome, err) }) }()
	c, err := s.check(op)
	if err != nil {
		return Result[T]{}, err
	}
	c.requestID = requestID(ctx)
	inner, err := once.Enter(ctx, s.flights, c.hash, true)
	if err != nil {
		return Result[T]{}, err
	}
	p := &pending{call: c, deadline: time.Now().Add(c.wait)}
	var own T // what the function has returned, as a replay will have it
	w := func(_ context.Context, tx access.OwnTx[Tx]) (storedResult, error) {
		return run(inner, s, c, tx.Tx(), fn, &own)
	}
	var in *similarClaim[Tx]
	if c.similar != nil {
		in = &similarClaim[Tx]{s: s, call: c}
		w = in.before(w)
	}
	policy := once.WaitPolicy{NoWait: c.noWait, Wait: c.wait, Deadline: p.deadline}
	for {
		f, leads := s.flights.Join(c.hash)
		if leads {
			r, outcome, err := s.lead(ctx, p, f, in, w, &span)
			if err != nil {
				return Result[T]{}, once.Unstored[*Rejection](err)
			}
			if outcome == Replayed {
				return traced[T](s, c, r, Replayed, &span)
			}
			once.Committed(inner)
			if r.state == rejected {
				return answer[T](s, c, r, Executed)
			}
			if in != nil {
				in.executed(ctx)
			}
			return Result[T]{own, Executed}, nil
		}
		r, err := f.Follow(ctx, policy)
		err = inProgress(err)
		if c.noWait && errors.Is(err, ErrInProgress) {
			r, err = s.peek(ctx, c) // the leader may itself be replaying
		}
		if err != nil {
			return Result[T]{}, err
		}
		if r != nil {
			return traced[T](s, c, r, Replayed, &span)
		}
	}
}

// lead runs p for itself and for the duplicates that follow it.
func (s *Store[Tx]) lead(ctx context.Context, p *pending, f *once.Flight[record], in *similarClaim[Tx], w work[Tx], span *trace.Span) (r *record, o Outcome, err error) {
	defer func() { s.flights.Finish(p.hash, f, r) }() // also when the function panics: r is nil then
	attempts := once.Retry[record]{
		ExpectNew: s.expectNew, NoWait: p.noWait, Wait: p.wait, Limit: s.options.Attempts,
		Dialect: s.dialect(), Unstored: once.Unstored[*Rejection],
		Read: func(ctx context.Context) (*record, error) { return s.read(ctx, p) },
		Try:  func(ctx context.Context) (*record, error) { return s.try(ctx, p, in, w) },
	}
	defer func() { span.Attempts = attempts.Tries }()
	if s.ceilings != nil {
		attempts.Admit = func(ctx context.Context) error { return s.admit(ctx, s.access.Pool, p.op.Owner, 0) }
		defer func() {
			if attempts.Admitted && o != Executed && !errors.Is(err, ErrUnknown) { // also when the function panics
				s.ceilings.giveBack(p.op.Owner)
			}
		}()
	}
	r, executed, err := attempts.Run(ctx)
	switch {
	case err != nil:
		return nil, 0, s.blocked(ctx, p, inProgress(err))
	case executed:
		return r, Executed, nil
	}
	return r, Replayed, nil
}

// read returns the record if its operation is over, and nil if it is not. A call that does not
// wait gets ErrInProgress if it can see another call's claim.
func (s *Store[Tx]) read(ctx context.Context, p *pending) (r *record, err error) {
	err = s.access.OnConn(ctx, "", func(q core.Querier) error {
		r, p.expired, err = s.look(ctx, q, p.call)
		return err
	})
	if err != nil || r != nil || !p.noWait {
		return r, err
	}
	busy, err := s.inFlight(ctx, p.call)
	if busy {
		err = &InProgressError{}
	}
	return nil, err
}

// try runs one transaction. A final rejection rolls it back, and a second transaction stores the
// rejection. Another call may commit in between; then the result of that call counts.
func (s *Store[Tx]) try(ctx context.Context, p *pending, in *similarClaim[Tx], w work[Tx]) (r *record, err error) {
	if in == nil {
		r, err = s.transact(ctx, p, w)
	} else {
		r, err = in.queued(ctx, p, w)
	}
	var rej *Rejection
	if err == nil || !once.Decides(err, &rej) || ctx.Err() != nil {
		return r, err
	}
	no, err := s.options.encode(p.call, rejected, rej)
	if err != nil {
		return nil, err
	}
	return s.transact(ctx, p, func(context.Context, access.OwnTx[Tx]) (storedResult, error) { return no, nil })
}

// run runs fn, encodes its result, and decodes it into back. It fails for a result that does not
// decode again, so that such a result is never committed. All of its errors are the function's.
func run[T, Tx any](ctx context.Context, s *Store[Tx], c *call, tx Tx, fn func(context.Context, Tx) (T, error), back *T) (out storedResult, err error) {
	defer func() {
		if err != nil {
			err = &once.FuncError{Err: s.access.Explain(err)}
		}
	}()
	v, err := fn(ctx, tx)
	if err != nil {
		return out, once.Inner(err)
	}
	if out, err = s.options.encode(c, succeeded, v); err != nil {
		return out, err
	}
	*back = *new(T)
	if err := s.options.read(c, out, back); err != nil {
		return out, undecodable("result", err)
	}
	return out, nil
}

// traced is answer, and tells the call's span whose result it replays.
func traced[T, Tx any](s *Store[Tx], c *call, r *record, o Outcome, span *trace.Span) (Result[T], error) {
	res, err := answer[T](s, c, r, o)
	if res.Outcome == Replayed {
		span.Original = r.requestID
	}
	return res, err
}

// answer makes the result of c from a record.
func answer[T, Tx any](s *Store[Tx], c *call, r *record, o Outcome) (res Result[T], err error) {
	if err := c.judge(r); err != nil {
		return res, err
	}
	if r.state == rejected {
		var rej Rejection
		if err := s.options.decode(c, r.storedResult, &rej); err != nil {
			return res, err
		}
		return Result[T]{Outcome: o}, once.Settle(&rej)
	}
	if err := s.options.decode(c, r.storedResult, &res.Value); err != nil {
		return Result[T]{}, err
	}
	res.Outcome = o
	return res, nil
}
