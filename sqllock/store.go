package sqllock

import (
	"bytes"
	"context"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/sqllock/internal/batcher"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
	"github.com/holdfast-go/holdfast/sqllock/internal/knownrows"
)

// store runs the statements of the leases.
type store struct {
	*keeper.Store
	known *knownrows.Set // rows that are known to exist

	make, take, handOver, release core.Stmt

	// Statements for several leases at once, if the engine has them.
	many   batchStmts
	taking batcher.Batcher[keeper.Attempt, keeper.Answer]
	ending batcher.Batcher[freeing, keeper.Freed]
}

const (
	// aloneAtOnce is how many statements of one kind run alone at the same time. leastBatch is
	// the smallest batch.
	aloneAtOnce = 4
	leastBatch  = 8
	// statementLife is how long a running statement delays other requests. writerLife is the
	// same for a database with one writer, where concurrent requests would only fail.
	statementLife = 10 * time.Millisecond
	writerLife    = time.Second
)

func newStore(k *keeper.Store) *store {
	l := &k.Dialect.Leases
	s := &store{
		Store: k, known: knownrows.New(),
		make: k.Compile("make", l.Make.Text), take: k.Compile("take", l.Take.Text),
		handOver: k.Compile("hand over", l.HandOver.Text), release: k.Compile("release", l.Release),
	}
	s.many = compileBatches(s)
	s.taking.Run, s.ending.Run = s.takeMany, s.freeMany
	s.taking.From, s.taking.Least, s.taking.Life = aloneAtOnce, leastBatch, statementLife
	if l.TakeBound.Before != nil { // one writer at a time
		s.taking.From, s.taking.Least, s.taking.Life = 1, 2, writerLife
	}
	s.ending.From, s.ending.Least, s.ending.Life = s.taking.From, s.taking.Least, s.taking.Life
	return s
}

// busyTries is how often one attempt tries for a row that seems free but is locked: for about
// 15 ms.
const busyTries = 4

// takeBound bounds an attempt's wait for SQLite's write lock.
const takeBound = 10 * time.Millisecond

// acquire makes one attempt. It retries errors that the engine wants retried, and those of a
// locked row. If they persist, it reports the lock as held.
func (s *store) acquire(ctx context.Context, a keeper.Attempt) (v keeper.Answer, err error) {
	ambiguous := false // for any of the tries
	defer func() { v.Ambiguous = ambiguous }()
	pause := core.NewBackoff()
	for n := 1; ; n++ {
		v, err = s.acquireOnce(ctx, a)
		ambiguous = ambiguous || v.Ambiguous
		if err == nil {
			return v, nil
		}
		switch class := s.Dialect.Classify(err); {
		case class == dialect.Busy:
			// The row is locked by another statement, or by the reaper that raises the floor,
			// for a moment only. A guarded transaction may last longer.
			v, looked := s.HolderOf(ctx, a.Name)
			if s.unready(looked) {
				return v, &holdfast.RetryError{Attempts: n, Err: looked}
			}
			if v.Left > 0 || n >= busyTries {
				return v, nil
			}
		case class != dialect.Retry:
			return v, err
		case n == holdfast.DefaultAttempts:
			v, _ = s.HolderOf(ctx, a.Name)
			return v, nil
		}
		if err := pause.Sleep(ctx); err != nil {
			return v, err
		}
	}
}

func (s *store) acquireOnce(ctx context.Context, a keeper.Attempt) (keeper.Answer, error) {
	v, err := s.taking.Ask(ctx, a, func() (keeper.Answer, error) { return s.acquireAlone(ctx, a) })
	if err != nil || v.Won || !v.Ambiguous {
		return v, err
	}
	v, err = s.acquireAlone(ctx, a) // it finds its own term, if one exists by now
	v.Ambiguous = true
	return v, err
}

func (s *store) acquireAlone(ctx context.Context, a keeper.Attempt) (v keeper.Answer, err error) {
	ambiguous := false
	err = s.OnConn(ctx, "", s.Ambiguous(&ambiguous, func(q core.Querier) error {
		v, err = s.acquireOn(ctx, q, a)
		return err
	}))
	v.Ambiguous = ambiguous
	return v, err
}

func (s *store) acquireOn(ctx context.Context, q core.Querier, a keeper.Attempt) (keeper.Answer, error) {
	l := &s.Dialect.Leases
	if l.Make.Text != "" && !s.known.Has(a.Name) {
		v, told, err := s.grant(ctx, q, s.make, l.Make.ByInsertID, a)
		if err != nil && s.Dialect.Classify(err) != dialect.Duplicate {
			return v, err
		}
		s.known.Add(a.Name) // the row exists now
		if v.Won || told {
			return v, nil
		}
	}
	var v keeper.Answer
	var told bool
	err := s.bounded(ctx, q, func() (err error) {
		v, told, err = s.grant(ctx, q, s.take, l.Take.ByInsertID, a)
		return err
	})
	if err != nil || v.Won || told {
		return v, err
	}
	there, err := s.ReadOn(ctx, q, a.Name, &v)
	if err == nil && !there {
		s.known.Remove(a.Name) // the row was reaped: the next attempt inserts it
	}
	return v, err
}

// bounded runs f, which takes a lock, with a bound on its wait.
func (s *store) bounded(ctx context.Context, q core.Querier, f func() error) error {
	undo, err := s.Dialect.Leases.TakeBound.Change(ctx, q, takeBound)
	if err != nil {
		return err
	}
	err = f()
	if undo.Text != "" {
		if _, e := undo.Exec(context.WithoutCancel(ctx), q); err == nil {
			err = e
		}
	}
	return err
}

// grant runs a statement that may grant the lock. told reports whether the statement returned
// the holder when it did not grant.
func (s *store) grant(ctx context.Context, q core.Querier, stmt core.Stmt, byInsertID bool, a keeper.Attempt, more ...any) (v keeper.Answer, told bool, err error) {
	args := append([]any{a.Name, a.Owner[:], a.TTL.Microseconds(), s.Holder}, more...)
	if byInsertID {
		r, err := stmt.Exec(ctx, q, args...)
		v = keeper.Answer{Won: err == nil && r.Affected == 1, Token: r.InsertID}
		if v.Won && v.Token <= 0 { // a trigger may hide it
			_, err = s.ReadOn(ctx, q, a.Name, &v)
		}
		return v, false, err
	}
	var won int
	var left int64
	told, err = stmt.QueryRow(ctx, q, []any{&won, &v.Token, &left, &v.Holder}, args...)
	v.Won, v.Left = won == 1, keeper.Micros(left)
	return v, told, err
}

// pass hands the term of one owner over to an attempt. If an answer was lost, the row shows the
// outcome, or ambiguous reports that the attempt may have been granted.
func (s *store) pass(ctx context.Context, from keeper.OwnerID, a keeper.Attempt) (v keeper.Answer, ambiguous bool, err error) {
	err = s.Retry(ctx, func(q core.Querier) (err error) {
		v, _, err = s.grant(ctx, q, s.handOver, s.Dialect.Leases.HandOver.ByInsertID, a, from[:])
		ambiguous = ambiguous || err != nil && !s.Dialect.RolledBack(err)
		return err
	})
	if err == nil && !v.Won && ambiguous {
		now, looked := s.HolderOf(ctx, a.Name)
		now.Won = looked == nil && bytes.Equal(now.Owner, a.Owner[:])
		v = now
	}
	return v, ambiguous, err
}

// unready reports whether a read, which waits for no lock, shows that the node has lost its
// cluster. Such a node refuses the read, or the cluster sync before the read times out (1205).
func (s *store) unready(read error) bool {
	class := s.Dialect.Classify(read)
	return class == dialect.Unready || class == dialect.Busy && s.Dialect.Prefix != ""
}
