package sqllock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// MaxWait is the longest wait that AtMost takes.
const MaxWait = 24 * time.Hour

// Wait says how long a row lock is waited for. It takes the place of the lock
// timeout of the transaction's own, which is put back afterwards. The zero value
// is UntilDone.
type Wait struct {
	mode waitMode
	most time.Duration
}

type waitMode int

const (
	untilDone waitMode = iota
	atMost
	noWait
	skipLocked
)

var (
	// UntilDone waits until the context ends. The server's wait ends with it: at
	// once on PostgreSQL and SQLite, within half a second on MySQL and MariaDB.
	UntilDone = Wait{}

	// NoWait answers ErrNotNow where another transaction has the lock.
	NoWait = Wait{mode: noWait}

	// SkipLocked leaves out the rows that other transactions have locked. Of a
	// single key it is NoWait.
	SkipLocked = Wait{mode: skipLocked}
)

// AtMost waits for d and then answers ErrTimeout: 0 to MaxWait, rounded up to
// milliseconds, and to 20 ms on MySQL and MariaDB, whose bound is one on the
// statement. It bounds the whole call, and so does the context.
func AtMost(d time.Duration) Wait { return Wait{mode: atMost, most: d} }

func (w Wait) check() error {
	if w.most < 0 || w.most > MaxWait {
		return invalid("AtMost", fmt.Sprintf("%v is not between 0 and %v", w.most, MaxWait))
	}
	return nil
}

func (w Wait) now() bool { return w.mode == noWait || w.mode == skipLocked }

// waiting is the wait of one call, in the caller's transaction.
type waiting struct {
	sql      *dialect.RowLocks
	classify func(error) dialect.Class
	compile  func(name, text string) core.Stmt
	q        core.Querier
	wait     Wait
	start    time.Time
	// What is waited for, as in the errors.
	key, table string
	row        []any
	// The setting that bounds each wait: as it was, and as it is.
	was, is string
}

func newWaiting(d *dialect.Dialect, q core.Querier, w Wait) *waiting {
	return &waiting{sql: &d.RowLocks, classify: d.Classify, compile: d.Compile, q: q, wait: w, start: time.Now()}
}

// until runs try, whose wait is bounded by what it gets, as long as the wait
// lasts. set is whether a setting bounds it.
func (w *waiting) until(ctx context.Context, set bool, try func(bound time.Duration) error) error {
	pause := core.NewBackoff()
	for {
		bound, begun := w.bound(), time.Now()
		err := w.undoable(ctx, set, bound, try)
		switch {
		case w.classify(err) != dialect.Busy, ctx.Err() != nil:
			return err
		case w.wait.mode != untilDone:
			if over := w.over(); over != nil {
				return over
			}
		case w.sql.Savepoint:
			return err // the transaction did not outlive it
		}
		if time.Since(begun) < 100*time.Millisecond {
			if err := w.sleep(ctx, pause); err != nil {
				return err
			}
		}
	}
}

// over is what ends the wait, nil while it lasts.
func (w *waiting) over() error {
	switch waited := time.Since(w.start); {
	case w.wait.now():
		return &NotNowError{Key: w.key, Table: w.table, Row: w.row}
	case waited >= w.wait.most:
		return &TimeoutError{Key: w.key, Table: w.table, Row: w.row, Waited: waited}
	}
	return nil
}

// sleep pauses, at most until AtMost is over. A pause with the setting in place
// would leave it behind if the transaction's context ended.
func (w *waiting) sleep(ctx context.Context, pause *core.Backoff) error {
	if err := w.restore(ctx); err != nil {
		return err
	}
	bounded, cancel := ctx, context.CancelFunc(func() {})
	if w.wait.mode == atMost {
		bounded, cancel = context.WithDeadline(ctx, w.start.Add(w.wait.most))
	}
	defer cancel()
	_ = pause.Sleep(bounded)
	return context.Cause(ctx)
}

// bound is that of the next statement; 0 is none.
func (w *waiting) bound() time.Duration {
	switch {
	case w.wait.now():
		return max(w.sql.Least, time.Millisecond)
	case w.wait.mode == untilDone:
		return w.sql.Forever
	}
	left := max(w.wait.most-time.Since(w.start), w.sql.Least, time.Millisecond)
	if w.sql.Slice > 0 {
		left = min(left, w.sql.Slice)
	}
	return left
}

// undoable runs try, behind a savepoint where the transaction would not outlive
// the end of its wait.
func (w *waiting) undoable(ctx context.Context, set bool, bound time.Duration, try func(bound time.Duration) error) error {
	if set && w.sql.BoundSet != "" {
		if err := w.set(ctx, w.sql.Bound(bound)); err != nil {
			return err
		}
	}
	if !w.sql.Savepoint || w.wait.mode == untilDone {
		return try(bound)
	}
	if err := w.exec(ctx, `SAVEPOINT holdfast_wait`); err != nil {
		return err
	}
	err := try(bound)
	if err != nil {
		if w.classify(err) != dialect.Busy {
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

// one locks one row by a locking read, of which tail is what comes after SELECT;
// run runs a statement and tells whether there was a row.
func (w *waiting) one(ctx context.Context, tail string, run func(text string) (found bool, err error)) (found bool, err error) {
	begun := time.Now()
	try := func() (bool, error) { return run(w.sql.Select(time.Hour) + tail + w.sql.TryClause) }
	if !w.wait.now() {
		err = w.until(ctx, true, func(bound time.Duration) error {
			found, err = run(w.sql.Select(bound) + tail + w.sql.Clause)
			return err
		})
		if errors.Is(err, ErrTimeout) && w.sql.Least > 0 {
			// The statement may have been slow, and the row not locked.
			if free, tried := try(); w.classify(tried) != dialect.Busy && (free || tried != nil) {
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
	if w.classify(err) == dialect.Busy {
		err = w.over()
	}
	return found, err
}

func (w *waiting) exec(ctx context.Context, text string) error {
	_, err := core.Stmt{Name: "locks.wait", Text: text}.Exec(ctx, w.q)
	return err
}

// set makes the setting, and remembers what it was.
func (w *waiting) set(ctx context.Context, to string) error {
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
	if err == nil || to != w.was { // it may be set in spite of an error
		w.is = to
	}
	return err
}

// restore puts the setting back, even on a cancelled context.
func (w *waiting) restore(ctx context.Context) error {
	if w.is == w.was {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), holdfast.CleanupTimeout)
	defer cancel()
	return w.set(ctx, w.was)
}

// mendTries is how often mend looks, within some 200 ms.
const mendTries = 7

// mend looks in the pool for the connection of a transaction that ended with the
// setting in place, as its own context may have it do at any time. database/sql
// gives out what came back last, so it is found at once unless somebody has it.
func (w *waiting) mend(ctx context.Context, onConn func(context.Context, string, func(core.Querier) error) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), holdfast.CleanupTimeout)
	defer cancel()
	found, left := false, w.is
	pause := core.NewBackoff()
	for n := 0; n < mendTries && !found && pause.Sleep(ctx) == nil; n++ {
		_ = onConn(ctx, "", func(q core.Querier) error { // an error: again
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
