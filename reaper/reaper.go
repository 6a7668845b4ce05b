package reaper

import (
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// Defaults and bounds of Options.
const (
	DefaultBatch = 500
	// DefaultSQLiteBatch is smaller, because a batch holds the only writer.
	DefaultSQLiteBatch = 100
	MaxBatch           = 2000

	DefaultBatchTime = 50 * time.Millisecond
	MinBatchTime     = time.Millisecond
	MaxBatchTime     = time.Minute

	DefaultPace = 1.0
	MaxPace     = 1000.0

	DefaultLockGrace = time.Hour
	MinLockGrace     = time.Minute
	MaxLockGrace     = 365 * 24 * time.Hour

	DefaultMaxClockLeap = time.Minute
	MinMaxClockLeap     = time.Second
	MaxMaxClockLeap     = 24 * time.Hour

	// MaxHolder is the longest Options.Holder, in bytes.
	MaxHolder = 255
)

// lockWait bounds, on the server, how long a batch waits for a lock.
const lockWait = time.Second

// Options configure a Reaper; the zero value of each field is its default.
type Options struct {
	// Batch is how many rows a transaction clears at most, 1 to MaxBatch.
	// Default: 500; on SQLite 100.
	Batch int
	// BatchTime is how long a transaction should take: MinBatchTime to
	// MaxBatchTime. One that takes longer halves the next batch of its task, down
	// to a fifth of Batch, and as long as they take less than half they grow again.
	// Default: 50 ms.
	BatchTime time.Duration
	// Pace is how long the reaper rests after a batch, in multiples of the
	// time that the batch took: more than 0, at most MaxPace. Default: 1.
	Pace float64
	// MaxRows bounds a sweep. Results are cleared before keys and those before
	// locks, so it has to be more than what expires between two sweeps.
	// Default: no bound.
	MaxRows int64
	// LockGrace is for how long a lock that was released, or has expired, keeps
	// its row, and a place in a line that has expired: a minute to 365 days, far
	// above the time of any statement. To lock the key again meanwhile is cheaper.
	// Default: an hour.
	LockGrace time.Duration
	// MaxClockLeap is how much the database's clock may gain or lose against
	// the process's stopwatch between two looks: 1 s to 24 h. Default: a
	// minute.
	MaxClockLeap time.Duration
	// Tables are tables of the program's own, whose rows expire as well. They are
	// cleared after Holdfast's, in this order. At most MaxTables.
	Tables []TableSpec
	// Holder names this process in the history, at most 255 bytes of UTF-8, for
	// people to look at. Default: host name and process id.
	Holder string
	// OnReport gets the report of every pass of Run, also of one that failed.
	OnReport func(Report)
	// OnError gets the errors of Run, which goes on at the next interval.
	// Both are called on Run's goroutine, between passes. Default: errors are
	// dropped.
	OnError func(error)
}

func (o *Options) withDefaults(batch int) error {
	if o.Batch == 0 {
		o.Batch = batch
	}
	if o.BatchTime == 0 {
		o.BatchTime = DefaultBatchTime
	}
	if o.Pace == 0 {
		o.Pace = DefaultPace
	}
	if o.LockGrace == 0 {
		o.LockGrace = DefaultLockGrace
	}
	if o.MaxClockLeap == 0 {
		o.MaxClockLeap = DefaultMaxClockLeap
	}
	if o.Holder == "" {
		host, _ := os.Hostname() // a name for people; it may be missing
		o.Holder = host + ":" + strconv.Itoa(os.Getpid())
	}
	switch {
	case o.Batch < 1 || o.Batch > MaxBatch:
		return invalid("Options.Batch", fmt.Sprintf("%d is not between 1 and %d", o.Batch, MaxBatch))
	case math.IsNaN(o.Pace) || o.Pace < 0 || o.Pace > MaxPace:
		return invalid("Options.Pace", fmt.Sprintf("%v is not more than 0 and at most %v", o.Pace, MaxPace))
	case o.BatchTime < MinBatchTime || o.BatchTime > MaxBatchTime:
		return invalid("Options.BatchTime", fmt.Sprintf("%v is not between %v and %v", o.BatchTime, MinBatchTime, MaxBatchTime))
	case o.MaxRows < 0:
		return invalid("Options.MaxRows", fmt.Sprintf("%d is negative; 0 is no bound", o.MaxRows))
	case o.LockGrace < MinLockGrace || o.LockGrace > MaxLockGrace:
		return invalid("Options.LockGrace", fmt.Sprintf("%v is not between %v and %v", o.LockGrace, MinLockGrace, MaxLockGrace))
	case o.MaxClockLeap < MinMaxClockLeap || o.MaxClockLeap > MaxMaxClockLeap:
		return invalid("Options.MaxClockLeap", fmt.Sprintf("%v is not between %v and %v", o.MaxClockLeap, MinMaxClockLeap, MaxMaxClockLeap))
	case len(o.Tables) > MaxTables:
		return invalid("Options.Tables", fmt.Sprintf("has %d, more than %d", len(o.Tables), MaxTables))
	case len(o.Holder) > MaxHolder || !utf8.ValidString(o.Holder) || strings.ContainsRune(o.Holder, 0):
		return invalid("Options.Holder", fmt.Sprintf("is not valid UTF-8 without NUL bytes, of at most %d bytes", MaxHolder))
	}
	return nil
}

// Reaper clears what has expired in the tables of one DB. It is safe for
// concurrent use, makes one pass at a time, holds no connection between its
// statements and needs no closing.
type Reaper struct {
	options   Options
	pool      core.Querier
	transact  func(ctx context.Context, f func(ctx context.Context, q core.Querier) error) error
	retryable func(error) bool
	dialect   *dialect.Dialect
	clock     clock
	tasks     []task
	sizes     []size // of the tasks' batches
	history   *history
	trace     *trace.Tracer
	stopwatch func() time.Time
	turn      chan struct{} // holds a token while a pass is under way
}

// New makes a reaper, checks that the tables are there and takes the first
// look at the database's clock.
//
// Errors: [holdfast.ErrInvalid], [holdfast.ErrSchema] with the command to run,
// the driver's.
func New[Tx any](ctx context.Context, db *holdfast.DB[Tx], o Options) (*Reaper, error) {
	if db == nil {
		return nil, invalid("db", "is nil")
	}
	a := db.Access()
	sweep := &a.Dialect.Sweep
	if err := o.withDefaults(sweep.Batch); err != nil {
		return nil, err
	}
	if err := db.CheckSchema(ctx); err != nil {
		return nil, err
	}
	// A batch is one statement, so nothing can follow a transaction that was
	// lost, and no fence is needed.
	settings := core.TxOptions{Isolation: sweep.Isolation, LockTimeout: lockWait}
	r := &Reaper{
		options: o, pool: a.Pool, retryable: db.Retryable, dialect: a.Dialect, trace: a.Trace,
		transact: func(ctx context.Context, f func(ctx context.Context, q core.Querier) error) error {
			return a.Attempt(ctx, settings, func(ctx context.Context, _ Tx, q core.Querier) error { return f(ctx, q) })
		},
		turn: make(chan struct{}, 1), stopwatch: time.Now,
	}
	r.tasks = []task{
		newRecords("results", a.Table("records"), a.Dialect, sweep.Results),
		newRecords("keys", a.Table("records"), a.Dialect, sweep.Keys),
		newLocks(a.Table("locks"), a.Table("floor"), o.LockGrace, a.Dialect),
		newWaiters(a.Table("waiters"), a.Dialect),
		newClaims(a.Table("claims"), o.LockGrace, a.Dialect),
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
	r.clock = clock{limit: o.MaxClockLeap, read: readClock(a.Dialect, a.Pool)}
	if err := r.clock.accept(ctx); err != nil {
		return nil, fmt.Errorf("reaper: reading the database's clock: %w", err)
	}
	return r, nil
}

// again runs f until it succeeds or fails for good: errors after which the
// engine wants it run again are, with jittered pauses and so many times.
func (r *Reaper) again(ctx context.Context, f func() error) error {
	pause := core.NewBackoff()
	for n := 1; ; n++ {
		err := f()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil: // some drivers say "interrupted"
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case !r.retryable(err):
			return err
		case n == holdfast.DefaultAttempts:
			return &holdfast.RetryError{Attempts: n, Err: err}
		}
		if err := pause.Sleep(ctx); err != nil {
			return err
		}
	}
}

// explain adds what to do to errors that have a known cure.
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

// begin waits for the pass that is under way, or until ctx ends.
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
