package reaper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// Defaults and bounds of Options.
const (
	defaultBatch       = 500
	defaultSQLiteBatch = 100
	maxBatch           = 2000

	defaultBatchTime = 50 * time.Millisecond
	minBatchTime     = time.Millisecond
	maxBatchTime     = time.Minute

	defaultPace = 1.0
	maxPace     = 1000.0

	defaultLockGrace = time.Hour
	minLockGrace     = time.Minute
	maxLockGrace     = 365 * 24 * time.Hour

	defaultMaxClockJump = time.Minute
	minClockJump        = time.Second
	maxClockJump        = 24 * time.Hour

	maxHolder = 255
)

// lockWait bounds how long a batch waits for a lock. The server enforces it.
const lockWait = time.Second

// Options configure a Reaper. The zero value of each field is its default.
type Options struct {
	// Batch is the maximum number of rows that one transaction clears: 1 to 2000. Default:
	// 500; on SQLite 100.
	Batch int
	// BatchTime is how long a transaction should take: 1 ms to a minute. A
	// transaction that takes longer halves the next batch of its task, down to a fifth of
	// Batch. Batches grow again while they take less than half of BatchTime. Default: 50 ms.
	BatchTime time.Duration
	// Pace is how long the reaper pauses after a batch, as a multiple of the time that the
	// batch took: more than 0, at most 1000. Default: 1.
	Pace float64
	// MaxRows bounds the rows that one sweep clears. A sweep clears results before keys and
	// keys before locks, so MaxRows must exceed what expires between two sweeps. Default: no
	// bound.
	MaxRows int64
	// LockGrace is how long the row of a released or expired lock, and an expired ticket, is
	// kept: a minute to 365 days, far above the duration of any statement, and of any transaction at REPEATABLE READ or
	// above that locks a key with package rowlock. Locking the same key
	// again is cheaper while its row exists. Default: an hour.
	LockGrace time.Duration
	// MaxClockJump is how much the database's clock may gain or lose against the process's
	// monotonic clock between two readings: 1 s to 24 h. Default: a minute.
	MaxClockJump time.Duration
	// Tables are tables of the program's own whose rows expire as well. They are cleared after
	// Holdfast's tables, in this order. At most 100.
	Tables []Table
	// Holder names this process in the history, in at most 255 bytes. It is shown to people
	// only. Default: host name and process id.
	Holder string
}

func (o *Options) withDefaults(batch int) error {
	if o.Batch == 0 {
		o.Batch = batch
	}
	if o.BatchTime == 0 {
		o.BatchTime = defaultBatchTime
	}
	if o.Pace == 0 {
		o.Pace = defaultPace
	}
	if o.LockGrace == 0 {
		o.LockGrace = defaultLockGrace
	}
	if o.MaxClockJump == 0 {
		o.MaxClockJump = defaultMaxClockJump
	}
	if o.Holder == "" {
		o.Holder = core.DefaultHolder()
	}
	if err := cmp.Or(
		options.Many.Or("").UpTo(maxBatch).Of("rows").Check("Options.Batch", int64(o.Batch)),
		options.Span{Least: minBatchTime, Most: maxBatchTime}.Check("Options.BatchTime", o.BatchTime),
		options.Rows.Check("Options.MaxRows", o.MaxRows),
		options.Span{Least: minLockGrace, Most: maxLockGrace}.Check("Options.LockGrace", o.LockGrace),
		options.Span{Least: minClockJump, Most: maxClockJump}.Check("Options.MaxClockJump", o.MaxClockJump),
	); err != nil {
		return err
	}
	switch {
	case math.IsNaN(o.Pace) || o.Pace < 0 || o.Pace > maxPace:
		return invalid("Options.Pace", fmt.Sprintf("%v is not more than 0 and at most %v", o.Pace, maxPace))
	case len(o.Tables) > maxTables:
		return invalid("Options.Tables", fmt.Sprintf("has %d, more than %d", len(o.Tables), maxTables))
	case len(o.Holder) > maxHolder || !utf8.ValidString(o.Holder) || strings.ContainsRune(o.Holder, 0):
		return invalid("Options.Holder", fmt.Sprintf("is not valid UTF-8 without NUL bytes, of at most %d bytes", maxHolder))
	}
	return nil
}

// Reaper clears expired rows in the tables of one DB. It is safe for concurrent use and makes
// one pass at a time. It holds no connection between its statements and needs no closing.
type Reaper struct {
	options   Options
	pool      core.Querier
	transact  func(ctx context.Context, f func(ctx context.Context, q core.Querier) error) error
	retryable func(error) bool
	dialect   *dialect.Dialect
	clock     clock
	tasks     []task
	sizes     []size // batch sizes, one per task
	history   *history
	trace     *trace.Tracer
	stopwatch func() time.Time
	table     func(name string) string
	allowed   bool          // the account may clear every table
	turn      chan struct{} // holds a token while a pass is running
}

// New makes a Reaper. It checks that the tables exist and takes the first reading of the
// database's clock.
//
// Errors: [holdfast.ErrInvalid]; [holdfast.ErrSchema] with the command to run; the driver's.
func New[Tx any](ctx context.Context, db *holdfast.DB[Tx], opts ...Options) (*Reaper, error) {
	o, err := options.One(opts)
	if err != nil {
		return nil, err
	}
	if db == nil {
		return nil, invalid("db", "is nil")
	}
	a := access.Of(db)
	sweep := &a.Dialect.Sweep
	if err := o.withDefaults(sweep.Batch); err != nil {
		return nil, err
	}
	if err := db.CheckSchema(ctx); err != nil {
		return nil, err
	}
	// A batch is one statement. No statement can follow a lost transaction, so no fence is
	// needed.
	settings := core.TxOptions{Isolation: sweep.Isolation, LockTimeout: lockWait}
	r := &Reaper{
		options: o, pool: a.Pool, retryable: db.Retryable, dialect: a.Dialect, trace: a.Trace, table: a.Table,
		transact: func(ctx context.Context, f func(ctx context.Context, q core.Querier) error) error {
			return a.Attempt(ctx, settings, nil, func(ctx context.Context, _ Tx, q core.Querier, _ core.Reply) error { return f(ctx, q) })
		},
		turn: make(chan struct{}, 1), stopwatch: time.Now,
	}
	r.tasks = []task{
		newRecords("results", a.Table("records"), a.Dialect, sweep.Results),
		newRecords("keys", a.Table("records"), a.Dialect, sweep.Keys),
		newLocks(a.Table("locks"), a.Table("floor"), o.LockGrace, a.Dialect),
		newWaiters(a.Table("waiters"), a.Dialect),
		newTickets(a.Table("tickets"), o.LockGrace, a.Dialect),
		newStaged("staged_results", a.Table, a.Dialect, sweep.StagedResults),
		newStaged("staged_keys", a.Table, a.Dialect, sweep.StagedKeys),
		newSimilar(a.Table("similar"), a.Dialect),
		newLimitEntries(a.Table("limit_entries"), a.Dialect),
	}
	for _, spec := range o.Tables {
		t, err := newTable(ctx, db, &a, spec)
		if err != nil {
			return nil, err
		}
		r.tasks = append(r.tasks, t)
	}
	r.sizes = make([]size, len(r.tasks))
	r.history = newHistory(a.Table("sweeps"), o.Holder, a.Dialect)
	r.clock = clock{limit: o.MaxClockJump, read: readClock(a.Dialect, a.Pool)}
	if err := r.clock.accept(ctx); err != nil {
		return nil, fmt.Errorf("reaper: reading the database's clock: %w", err)
	}
	return r, nil
}

// again runs f until it succeeds or fails with an error that is not retryable, with jittered
// pauses, at most core.DefaultAttempts times.
func (r *Reaper) again(ctx context.Context, f func() error) error {
	exhausted, err := core.Retry(ctx, core.DefaultAttempts, r.retryable, func(int) error { return f() })
	switch cause := context.Cause(ctx); {
	case exhausted:
		return &holdfast.RetryError{Attempts: core.DefaultAttempts, Err: err}
	case err != nil && cause != nil && !errors.Is(err, cause): // some drivers say "interrupted"
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// explain adds the table's name to an error, or the command to run for a missing table.
func (r *Reaper) explain(t task, err error) error {
	own, _ := t.(*table)
	switch {
	case err == nil:
	case own != nil:
		return &TableError{Table: own.name(), Err: err}
	case r.dialect.Classify(err) == dialect.NoTable:
		return &holdfast.SchemaError{Table: t.table(), Err: err}
	}
	return err
}

// begin waits until the running pass has ended, or until ctx ends.
func (r *Reaper) begin(ctx context.Context) (end func(), err error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	select {
	case r.turn <- struct{}{}:
		return func() { <-r.turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func invalid(field, problem string) error {
	return &holdfast.InputError{Field: field, Problem: problem}
}
