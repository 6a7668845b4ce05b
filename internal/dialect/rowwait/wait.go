// Package rowwait locks rows in a caller's transaction. It bounds the wait for them by what
// each engine supports: a clause, a hint, a setting, or pauses between statements. Callers see
// no difference between the engines.
package rowwait

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/blockers"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// Mode says how a call waits.
type Mode int

const (
	Forever Mode = iota // until ctx ends
	UpTo                // for a duration
	No                  // not at all
	Skip                // not at all, and locked rows are left out
)

// ErrNotAvailable means that another transaction holds the lock, under No or Skip.
var ErrNotAvailable = errors.New("rowwait: locked by another transaction")

// TimeoutError means that the lock could not be acquired within the duration of UpTo.
type TimeoutError struct {
	Waited time.Duration
	// Blockers has those who blocked the last wait, if that is known.
	Blockers []core.Blocker
}

func (e *TimeoutError) Error() string { return "rowwait: not locked within " + e.Waited.String() }

// firstWait bounds the first wait of UpTo, if the server can tell in the second one who blocks. A call
// that waits less than leastWait waits once.
const (
	firstWait = 500 * time.Millisecond
	leastWait = 40 * time.Millisecond
)

// Env is the part of a database that a Wait needs.
type Env struct {
	Dialect *dialect.Dialect
	// Names replaces the names of the tables in the dialect's statements.
	Names *strings.Replacer
	// OnConn and Alive are those of access.Access.
	OnConn func(ctx context.Context, before string, f func(q core.Querier) error) error
	Alive  func(ctx context.Context, q core.Querier) error
	// PoolWait is the constant, except in tests.
	PoolWait time.Duration
	// Blockers finds out who blocks a wait of UpTo; it may be nil.
	Blockers *blockers.Env
}

// stmt compiles a statement of the dialect.
func (e *Env) stmt(name, text string) core.Stmt {
	return e.Dialect.Compile(name, e.Names.Replace(text))
}

// Wait is the wait of one call in the caller's transaction.
type Wait struct {
	env   *Env
	sql   *dialect.RowLocks
	q     core.Querier
	mode  Mode
	most  time.Duration
	start time.Time
	// The setting that bounds each wait: its value before the call, and its current value.
	was, is string
	watch   blockers.Watch
}

// New starts the wait of a call on q; most is the duration of UpTo.
func (e *Env) New(q core.Querier, mode Mode, most time.Duration) *Wait {
	w := &Wait{env: e, sql: &e.Dialect.RowLocks, q: q, mode: mode, most: most, start: time.Now()}
	if mode == UpTo {
		w.watch = e.Blockers.Watch(w.start.Add(most))
	}
	return w
}

// Querier runs statements in the caller's transaction.
func (w *Wait) Querier() core.Querier { return w.q }

func (w *Wait) now() bool { return w.mode == No || w.mode == Skip }

func (w *Wait) busy(err error) bool { return w.env.Dialect.Classify(err) == dialect.Busy }

// Alive returns an error if the transaction has ended.
func (w *Wait) Alive(ctx context.Context) error { return w.env.Alive(ctx, w.q) }

// End restores the setting that bounded the wait. goesOn says that the transaction continues.
// Only then does End return an error if restoring fails.
func (w *Wait) End(ctx context.Context, goesOn bool) error {
	err := w.restore(ctx)
	if w.is != w.was && w.sql.BoundOutlives {
		w.restoreOnPool(ctx)
	}
	if goesOn {
		return err
	}
	return nil
}

// LockAll locks all rows at once, on an engine without row locks.
func (w *Wait) LockAll(ctx context.Context) error {
	if w.sql.Take == "" {
		return nil
	}
	take := w.env.stmt("rows.take", w.sql.Take)
	return w.until(ctx, true, func(time.Duration) error {
		_, err := take.Exec(ctx, w.q)
		return err
	})
}

// LockRow locks one row and scans it into dest. tail is the text of the read after SELECT.
// LockRow reports whether the row exists.
func (w *Wait) LockRow(ctx context.Context, name, tail string, dest []any, args ...any) (bool, error) {
	return w.one(ctx, tail, func(text string) (bool, error) {
		return w.env.Dialect.Compile(name, text).QueryRow(ctx, w.q, dest, args...)
	})
}

// Next returns one statement that finds and locks rows, and leaves out locked ones. tail is
// its text after SELECT. Next returns false if a scan would lock the rows that it passes: then
// use Find to find keys, and ByKey to lock rows.
func (w *Wait) Next(name, tail string) (core.Stmt, bool) {
	if w.sql.ByKey != nil {
		return core.Stmt{}, false
	}
	return w.env.Dialect.Compile(name, w.sql.Select(time.Hour)+tail+w.sql.TryClause), true
}

// Find returns a plain read. tail is its text after SELECT.
func (w *Wait) Find(name, tail string) core.Stmt {
	return w.env.Dialect.Compile(name, w.sql.Select(time.Hour)+tail)
}

// ByKey returns the statement that locks rows by their keys, and leaves out locked ones. from
// is its text after SELECT up to the table, and where is the rest. If OneByOne reports true,
// the statement is for one key, and Left reports whether its error means that the row is left out.
func (w *Wait) ByKey(name, from, index, where string) core.Stmt {
	clause := ` FOR UPDATE SKIP LOCKED`
	if w.sql.OneByOne {
		clause = w.sql.TryClause
	}
	return w.env.Dialect.Compile(name, w.sql.Select(time.Hour)+from+w.sql.ByKey(index)+where+clause)
}

// OneByOne reports whether each row needs its own statement to be locked or left out.
func (w *Wait) OneByOne() bool { return w.sql.OneByOne }

// Left reports whether err means that the row is locked by another transaction.
func (w *Wait) Left(err error) bool { return w.busy(err) }

// until runs try repeatedly, each time with a bound on its wait, until the whole wait is over.
// set says that a setting carries the bound.
func (w *Wait) until(ctx context.Context, set bool, try func(bound time.Duration) error) error {
	pause := core.NewBackoff()
	for {
		bound, begun := w.bound(), time.Now()
		err := w.watch.During(ctx, w.q, bound, func() error { return w.undoable(ctx, set, bound, try) })
		switch {
		case !w.busy(err), ctx.Err() != nil:
			return err
		case w.mode != Forever:
			if over := w.over(); over != nil {
				return over
			}
		case w.sql.Savepoint:
			return err // the error has ended the transaction too
		}
		if waited := time.Since(begun); waited < 100*time.Millisecond && (bound == 0 || waited < bound) {
			if err := w.sleep(ctx, pause); err != nil {
				return err
			}
		}
	}
}

// over returns the error that ends the wait, or nil while the wait continues.
func (w *Wait) over() error {
	switch waited := time.Since(w.start); {
	case w.now():
		return ErrNotAvailable
	case waited >= w.most:
		return &TimeoutError{Waited: waited, Blockers: w.watch.Found()}
	}
	return nil
}

// sleep pauses, at most until the wait of UpTo is over. It restores the setting first, because
// the transaction's context may end during the pause.
func (w *Wait) sleep(ctx context.Context, pause *core.Backoff) error {
	if err := w.restore(ctx); err != nil {
		return err
	}
	bounded, cancel := ctx, context.CancelFunc(func() {})
	if w.mode == UpTo {
		bounded, cancel = context.WithDeadline(ctx, w.start.Add(w.most))
	}
	defer cancel()
	_ = pause.Sleep(bounded)
	return context.Cause(ctx)
}

// bound returns the bound on the next statement. 0 means no bound.
func (w *Wait) bound() time.Duration {
	switch {
	case w.now():
		return max(w.sql.Least, time.Millisecond)
	case w.mode == Forever:
		return w.sql.Forever
	}
	left := max(w.most-time.Since(w.start), w.sql.Least, time.Millisecond)
	if w.watch.First() && w.most >= leastWait {
		// Only a wait that has ended shows that it takes long. The next one is looked at.
		left = min(left, firstWait, w.most/2)
	}
	if w.sql.Slice > 0 {
		left = min(left, w.sql.Slice)
	}
	return left
}

// undoable runs try. If the end of a wait would abort the transaction, it runs try after a
// savepoint.
func (w *Wait) undoable(ctx context.Context, set bool, bound time.Duration, try func(bound time.Duration) error) error {
	if set && w.sql.BoundSet != "" {
		if err := w.set(ctx, w.sql.Bound(bound)); err != nil {
			return err
		}
	}
	if !w.sql.Savepoint || w.mode == Forever {
		return try(bound)
	}
	if err := w.exec(ctx, `SAVEPOINT holdfast_wait`); err != nil {
		return err
	}
	err := try(bound)
	if err != nil {
		if !w.busy(err) {
			return err
		}
		if err := w.exec(ctx, `ROLLBACK TO SAVEPOINT holdfast_wait`); err != nil {
			return err
		}
	}
	if err := w.exec(ctx, `RELEASE SAVEPOINT holdfast_wait`); err != nil {
		return err
	}
	return err
}

// one locks one row by a locking read. tail is the text of the read after SELECT. run runs a
// statement and reports whether it returned a row.
func (w *Wait) one(ctx context.Context, tail string, run func(text string) (found bool, err error)) (found bool, err error) {
	begun := time.Now()
	try := func() (bool, error) { return run(w.sql.Select(time.Hour) + tail + w.sql.TryClause) }
	if !w.now() {
		err = w.until(ctx, true, func(bound time.Duration) error {
			found, err = run(w.sql.Select(bound) + tail + w.sql.Clause)
			return err
		})
		if late := (*TimeoutError)(nil); errors.As(err, &late) && w.sql.Least > 0 {
			// The row may be free if the statement was only slow.
			if free, tried := try(); !w.busy(tried) && (free || tried != nil) {
				return free, tried
			}
		}
		return found, err
	}
	found, err = try()
	if err == nil && !found {
		switch w.sql.Left {
		case dialect.LeftWaits:
			slow := 4 * time.Since(begun)
			found, err = run(w.sql.Select(max(w.sql.Least, slow)) + tail + w.sql.Clause)
		case dialect.LeftReads:
			there, err := run(w.sql.Select(0) + tail)
			if err == nil && there {
				err = w.over()
			}
			return false, err
		}
	}
	if w.busy(err) {
		err = w.over()
	}
	return found, err
}

func (w *Wait) exec(ctx context.Context, text string) error {
	_, err := core.Stmt{Name: "locks.wait", Text: text}.Exec(ctx, w.q)
	return err
}

// set changes the setting, and remembers its value before the call.
func (w *Wait) set(ctx context.Context, to string) error {
	if w.was == "" {
		if _, err := (core.Stmt{Name: "locks.wait", Text: w.sql.BoundGet}).QueryRow(ctx, w.q, []any{&w.was}); err != nil {
			return err
		}
		w.is = w.was
	}
	if w.is == to {
		return nil
	}
	err := w.exec(ctx, strings.ReplaceAll(w.sql.BoundSet, "{to}", to))
	if err == nil || to != w.was { // after an error, the setting may have changed or not
		w.is = to
	}
	return err
}

// restore restores the setting, even if ctx has ended.
func (w *Wait) restore(ctx context.Context) error {
	if w.is == w.was {
		return nil
	}
	ctx, cancel := core.Cleanup(ctx)
	defer cancel()
	return w.set(ctx, w.was)
}

// restoreTries is the number of tries of restoreOnPool, over about 200 ms.
const restoreTries = 7

// restoreOnPool restores the setting on the connection of a transaction that ended during the
// wait, because its own context ended. It finds the connection in the pool by the value of the
// setting: database/sql hands out the most recently returned connection first.
func (w *Wait) restoreOnPool(ctx context.Context) {
	ctx, cancel := core.Cleanup(ctx)
	defer cancel()
	found, left := false, w.is
	pause := core.NewBackoff()
	for n := 0; n < restoreTries && !found && pause.Sleep(ctx) == nil; n++ {
		_ = w.env.OnConn(ctx, "", func(q core.Querier) error { // after an error, the loop tries again
			now := ""
			_, err := (core.Stmt{Name: "locks.wait", Text: w.sql.BoundGet}).QueryRow(ctx, q, []any{&now})
			if err != nil || now != left {
				return err
			}
			w.q = q
			err = w.set(ctx, w.was)
			found = err == nil
			return err
		})
	}
}
