package sqllock

import (
	"bytes"
	"context"
	"errors"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/lockstmt"
	"github.com/holdfast-go/holdfast/sqllock/internal/batcher"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
	"github.com/holdfast-go/holdfast/sqllock/internal/knownrows"
)

// statements are those of the leases.
// The order of its statements is that of internal/test/model/lease.pml.
type statements struct {
	*keeper.Statements

	sql   *lockstmt.LeaseStatements
	known *knownrows.Set // rows that are known to exist

	taking batcher.Batcher[keeper.Attempt, keeper.AttemptResult]
	ending batcher.Batcher[freeing, keeper.Freed]
}

func newStatements(k *keeper.Statements) *statements {
	s := &statements{Statements: k, sql: k.Leases(batcher.Max, k.Holder, k.Self), known: knownrows.New()}
	b := s.sql.Batching
	spread := b.SpreadOf(k.Connections)
	s.taking.Run, s.taking.From, s.taking.Spread, s.taking.Least, s.taking.Life = s.takeMany, b.Alone, spread, b.Least, b.Life
	s.ending.Run, s.ending.From, s.ending.Spread, s.ending.Least, s.ending.Life = s.freeMany, b.Alone, spread, b.Least, b.Life
	return s
}

// tried is the result of a try.
type tried struct {
	result keeper.AttemptResult
	err    error
}

// acquire makes one attempt. It retries errors that the engine wants retried, and those of a
// locked row. If they persist, it reports the lock as held. first is the result of the first try, or nil if it
// is not made yet.
func (s *statements) acquire(ctx context.Context, a keeper.Attempt, first *tried) (v keeper.AttemptResult, err error) {
	ambiguous := false // for any of the tries
	exhausted, err := core.Retry(ctx, core.DefaultAttempts, s.retryable, func(n int) (err error) {
		v, err = s.acquireOnce(ctx, a, first)
		first = nil
		ambiguous = ambiguous || v.Ambiguous
		if s.Dialect.Classify(err) == dialect.Busy {
			v, err = s.busy(ctx, a, n, err)
		}
		return err
	})
	switch {
	case exhausted:
		v, _ = s.HolderOf(ctx, a.Name)
		err = nil
	case ctx.Err() != nil && s.retryable(err):
		err = context.Cause(ctx)
	}
	v.Ambiguous = ambiguous
	return v, err
}

// retryable reports whether another try may succeed after err.
func (s *statements) retryable(err error) bool {
	class := s.Dialect.Classify(err)
	return !errors.Is(err, holdfast.ErrRetry) && (class == dialect.Retry || class == dialect.Busy)
}

// busyTries is how often one attempt tries for a row that seems free but is locked: for about
// 15 ms.
const busyTries = 4

// busy decides what to do after try n, which found the row locked by another statement, or by
// the reaper that raises the floor: for a moment only. A guarded transaction may last longer. It
// returns err to try again.
func (s *statements) busy(ctx context.Context, a keeper.Attempt, n int, err error) (keeper.AttemptResult, error) {
	v, failed := s.HolderOf(ctx, a.Name)
	switch {
	case s.Unready(failed):
		return v, &holdfast.RetryError{Attempts: n, Err: failed}
	case v.Left > 0 || n >= busyTries:
		return v, nil
	}
	return v, err
}

// acquireOnce makes one try, alone or in a batch, or goes on with the result of one.
func (s *statements) acquireOnce(ctx context.Context, a keeper.Attempt, made *tried) (v keeper.AttemptResult, err error) {
	if made != nil {
		v, err = made.result, made.err
	} else {
		v, err = s.taking.Ask(ctx, a, func() (keeper.AttemptResult, error) { return s.acquireAlone(ctx, a) })
	}
	if err != nil && ctx.Err() != nil { // it may be under way; and the error may be the cause of ctx, about another statement
		v.Ambiguous = true
	}
	if err != nil || v.Won || !v.Ambiguous {
		return v, err
	}
	v, err = s.acquireAlone(ctx, a) // it finds its own term, if one exists by now
	v.Ambiguous = true
	return v, err
}

// acquireIn is acquireAlone for a call that has a place beside the batches.
func (s *statements) acquireIn(ctx context.Context, place uint64, a keeper.Attempt) (keeper.AttemptResult, error) {
	defer s.taking.Leave(place)
	return s.acquireAlone(ctx, a)
}

func (s *statements) acquireAlone(ctx context.Context, a keeper.Attempt) (_ keeper.AttemptResult, err error) {
	var t struct {
		answer    keeper.AttemptResult
		ambiguous bool
	}
	err = s.OnConn(ctx, func(q core.Querier) (err error) {
		t.answer, err = s.acquireOn(ctx, q, a)
		t.ambiguous = t.ambiguous || s.MayStand(err)
		return err
	})
	t.answer.Ambiguous = t.ambiguous || t.answer.Won && err != nil // granted, and the token could not be read
	return t.answer, err
}

// acquireOn makes the row of the lock, unless it exists, or takes it over. A lock whose row is
// known needs one statement, if it is free.
func (s *statements) acquireOn(ctx context.Context, q core.Querier, a keeper.Attempt) (keeper.AttemptResult, error) {
	if s.sql.LookFirst {
		state, there, err := s.ReadOn(ctx, q, a.Name)
		switch {
		case err != nil, state.Left > 0 && !bytes.Equal(state.Attempt, a.ID[:]):
			return resultOf(lockstmt.Held, state), err
		case there:
			s.known.Add(a.Name)
		default:
			s.known.Remove(a.Name)
		}
	}
	if s.sql.MakeFirst(s.known, a.Name) {
		outcome, state, err := s.sql.Make.Run(ctx, q, a)
		if err != nil && s.Dialect.Classify(err) != dialect.Duplicate {
			return resultOf(outcome, state), err
		}
		s.known.Add(a.Name) // the row exists now
		if outcome != lockstmt.Refused {
			return resultOf(outcome, state), nil
		}
	}
	outcome, state, err := s.sql.Take.Run(ctx, q, a)
	if err != nil || outcome != lockstmt.Refused {
		return resultOf(outcome, state), err
	}
	state, there, err := s.ReadOn(ctx, q, a.Name)
	if err == nil && !there {
		s.known.Remove(a.Name) // the row was reaped: the next attempt inserts it
	}
	return resultOf(outcome, state), err
}

func resultOf(outcome lockstmt.Outcome, state lockstmt.State) keeper.AttemptResult {
	return keeper.AttemptResult{State: state, Won: outcome == lockstmt.Granted}
}

// handOver hands a term over to the attempt a. If an answer was lost, the row shows the outcome,
// or ambiguous reports that the attempt may have been granted.
func (s *statements) handOver(ctx context.Context, from keeper.AttemptID, a keeper.Attempt) (v keeper.AttemptResult, ambiguous bool, err error) {
	err = s.Retry(ctx, s.Ambiguous(&ambiguous, func(q core.Querier) error {
		outcome, state, err := s.sql.HandOver.RunFrom(ctx, q, from, a)
		v = resultOf(outcome, state)
		return err
	}))
	if err == nil && !v.Won && ambiguous {
		now, failed := s.HolderOf(ctx, a.Name)
		now.Won = failed == nil && bytes.Equal(now.Attempt, a.ID[:])
		v = now
	}
	return v, ambiguous, err
}

// wait waits for the running batches.
func (s *statements) wait() {
	s.taking.Wait()
	s.ending.Wait()
}
