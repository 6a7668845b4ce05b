package staged

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/options"
)

// Bounds and defaults of the completer.
const (
	defaultBatch   = 100
	defaultWorkers = 16
	defaultEvery   = 10 * time.Second
)

// RunOptions configure the completer. The zero value of each field is its default.
type RunOptions struct {
	// Every is the pause between two passes of RunCompleter, with jitter of a half: 10 ms to 7 days. Default: 10 s.
	Every time.Duration
	// Limit is the maximum number of operations of one pass. Default: 100; at most 10000.
	Limit int
	// Workers is the maximum number of operations that the completer has in progress at once. A
	// worker needs a connection only for its statements, not while it waits for a provider.
	// Default: 16; at most 10000.
	Workers int
	// OnPass receives the result and the error of each pass of RunCompleter, when its operations
	// have ended, and of operations that StartTx has begun in this process. It is not called
	// twice at a time. Default: an error is logged with Logger. Complete returns them instead.
	OnPass func(Completed, error)
	// Logger logs the errors. Default: slog.Default().
	Logger *slog.Logger
}

func runOptions(opts []RunOptions) (RunOptions, error) {
	o, err := options.One(opts)
	if err != nil {
		return o, err
	}
	if o.Limit == 0 {
		o.Limit = defaultBatch
	}
	if o.Workers == 0 {
		o.Workers = defaultWorkers
	}
	if o.Every == 0 {
		o.Every = defaultEvery
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return o, cmp.Or(
		options.Interval.Check("RunOptions.Every", o.Every),
		options.Many.Of("workers").Check("RunOptions.Workers", int64(o.Workers)),
		options.Many.Of("operations").Check("RunOptions.Limit", int64(o.Limit)),
	)
}

// Completed is the result of one pass of the completer.
type Completed struct {
	// Found is the number of due operations: their worker died, or their pause was over.
	Found int
	// Succeeded and Rejected operations were finished, Settling ones wait for their provider, Parked
	// ones have an unknown outcome, Failed ones will be tried again, and Busy ones were taken by
	// another worker.
	Succeeded, Rejected, Settling, Parked, Failed, Busy int
	// Errs are the errors of the operations that failed. They come from the functions and may
	// contain text that should not be logged.
	Errs []error
}

// pass is one pass of a completer.
type pass struct {
	open  sync.WaitGroup // its operations in progress
	mu    sync.Mutex
	done  Completed
	taken error // the last error of the statements that take an operation
}

func (p *pass) add(f func(done *Completed)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.done)
}

// Complete makes one pass over the operations whose lease, pause or deadline has ended. It continues
// them, RunOptions.Workers at a time, or parks them, as their steps declare. It takes at most
// RunOptions.Limit of them, and returns when they have ended. Concurrent calls, in any
// processes, are safe. If ctx ends, Complete stops between steps.
//
// Errors: [ErrInTx], [holdfast.ErrInvalid], [holdfast.ErrSchema], errors of ctx and of the driver.
func (s *Runner[Req, Res, Tx]) Complete(ctx context.Context, opts ...RunOptions) (done Completed, err error) {
	ctx, span := once.StartSpan(ctx, s.transitions.Access.Trace, "staged.complete", s.workflow.Name)
	defer func() { span.Rows = int64(done.Found); span.End(err, nil) }()
	o, err := runOptions(opts)
	if err != nil {
		return done, err
	}
	if err := s.outside(ctx); err != nil {
		return done, err
	}
	w, p := newWorkers(o.Workers), &pass{}
	_, err = s.begin(ctx, o.Limit, w, p)
	w.wait()
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return p.done, err
}

// begin finds the operations of a pass and gives them to workers. It returns how many those are: fewer
// than it found if this process has some of them in progress.
func (s *Runner[Req, Res, Tx]) begin(ctx context.Context, limit int, w *workers, p *pass) (begun int, err error) {
	keys, err := s.due(ctx, limit)
	if err != nil {
		return 0, err
	}
	p.add(func(done *Completed) { done.Found = len(keys) })
	for _, id := range keys {
		if !s.local.begin(id, s.workflow.Lease) {
			p.add(func(done *Completed) { done.Busy++ })
			continue
		}
		p.open.Add(1)
		did := w.run(ctx, func() {
			defer p.open.Done()
			defer s.local.over(id)
			s.complete(ctx, id, p)
		})
		if !did {
			p.open.Done()
			s.local.over(id)
			return begun, nil
		}
		begun++
	}
	return begun, nil
}

func (s *Runner[Req, Res, Tx]) due(ctx context.Context, limit int) ([]once.ID, error) {
	rows, err := s.transitions.SQL.Due.Query(ctx, s.transitions.Access.Pool, s.transitions.options.Namespace, s.workflow.Name, limit)
	if err != nil {
		return nil, s.transitions.Explain(err)
	}
	return core.Collect(rows, func(row core.Row) (id once.ID, err error) {
		err = row.Scan(&id.Owner, once.Into(&id.Hash))
		return id, err
	})
}

func (s *Runner[Req, Res, Tx]) complete(ctx context.Context, id once.ID, p *pass) {
	c := &once.Checked{ID: id}
	row, err := s.transitions.Read(ctx, s.transitions.Access.Pool, id)
	if err == nil && row != nil && row.State == ledger.Pending && row.Left <= 0 {
		row, err = s.take(ctx, c, row)
	}
	var rej *idempotency.Rejection
	var parkedErr *ParkedError
	parked := row != nil && row.State == ledger.Parked
	busy, unread := err == nil && (row == nil || !row.Mine), err
	if err == nil && !busy {
		var inner context.Context
		if inner, err = s.transitions.store.Enter(ctx, id.Hash); err == nil {
			_, err = s.drive(ctx, inner, c, row)
		}
	}
	var settles *AcceptedError
	p.mu.Lock()
	defer p.mu.Unlock()
	done := &p.done
	switch {
	case busy && parked:
		done.Parked++
	case busy:
		done.Busy++
	case err == nil:
		done.Succeeded++
	case errors.As(err, &rej):
		done.Rejected++
	case errors.As(err, &parkedErr):
		done.Parked++
	case errors.As(err, &settles):
		done.Settling++
	case errors.Is(err, ErrStale):
		done.Busy++
	default:
		done.Failed++
		done.Errs = append(done.Errs, err)
		p.taken = cmp.Or(unread, p.taken)
	}
}

// RunCompleter repeats Complete until ctx ends, and returns the cause. The interval between passes
// is RunOptions.Every; a full batch is followed by the next pass at once. A pass does not
// wait for the operations of the pass before it. Operations that StartTx has begun in this process, with
// this runner, need no pass: the completer continues them as soon as their commit is known. After an
// error, such as a database that is down, it continues. RunOptions.OnPass receives each result
// and error. RunCompleter returns when its operations have stopped, between steps.
//
// Errors: [ErrInTx] and [holdfast.ErrInvalid], at once; the cause of ctx.
func (s *Runner[Req, Res, Tx]) RunCompleter(ctx context.Context, opts ...RunOptions) error {
	o, err := runOptions(opts)
	if err != nil {
		return err
	}
	if err := s.outside(ctx); err != nil {
		return err
	}
	c := &completer[Req, Res, Tx]{runner: s, options: o, workers: newWorkers(o.Workers)}
	s.local.open()
	defer c.workers.wait()
	defer s.local.close()
	return c.run(ctx)
}

// completer is one RunCompleter.
type completer[Req, Res, Tx any] struct {
	runner  *Runner[Req, Res, Tx]
	options RunOptions
	workers *workers
	mu      sync.Mutex // OnPass runs
	// unable: a pass could take none of its operations.
	unable atomic.Bool
}

// The pauses after a pass that could take none of its operations.
const firstUnable, mostUnable = 10 * time.Millisecond, 5 * time.Second

func (c *completer[Req, Res, Tx]) run(ctx context.Context) error {
	failing, unable, next := core.NewBackoff(), time.Duration(0), time.NewTimer(0)
	defer next.Stop()
	for {
		c.workers.check()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.runner.local.wake:
			c.started(ctx)
			continue
		case <-next.C:
		}
		more, err := c.pass(ctx)
		switch {
		case c.unable.Swap(false):
			unable = min(max(2*unable, firstUnable), mostUnable)
			next.Reset(unable)
			continue
		case more:
			next.Reset(0)
			continue
		case err == nil:
			failing, unable = core.NewBackoff(), 0
		default:
			if err := failing.Sleep(ctx); err != nil {
				return err
			}
		}
		next.Reset(time.Duration(float64(c.options.Every) * (0.5 + rand.Float64()/2)))
	}
}

// started gives the operations that this process has begun to workers.
func (c *completer[Req, Res, Tx]) started(ctx context.Context) {
	for ctx.Err() == nil {
		id, ok := c.runner.local.next()
		if !ok {
			return
		}
		p := &pass{done: Completed{Found: 1}}
		did := c.workers.run(ctx, func() {
			defer c.report(ctx, p, nil)
			defer c.runner.local.over(id)
			c.runner.complete(ctx, id, p)
		})
		if !did {
			c.runner.local.over(id)
		}
	}
}

// pass makes a pass, and reports it when its operations have ended. It returns true if another pass
// should follow at once.
func (c *completer[Req, Res, Tx]) pass(ctx context.Context) (more bool, err error) {
	traced, span := once.StartSpan(ctx, c.runner.transitions.Access.Trace, "staged.complete", c.runner.workflow.Name)
	p := &pass{}
	begun, err := c.runner.begin(traced, c.options.Limit, c.workers, p)
	found := 0
	p.add(func(done *Completed) { found = done.Found })
	span.Rows = int64(found)
	span.End(err, nil)
	c.workers.all.Go(func() {
		defer c.workers.caught()
		p.open.Wait()
		c.report(ctx, p, err)
	})
	return err == nil && found == c.options.Limit && begun > 0, err
}

// report passes a result to OnPass, and notes a pass that could take none of its operations.
func (c *completer[Req, Res, Tx]) report(ctx context.Context, p *pass, err error) {
	if p.taken != nil && p.done.Failed+p.done.Busy == p.done.Found {
		c.unable.Store(true)
	}
	switch {
	case ctx.Err() != nil:
		return
	case c.options.OnPass == nil:
		if err = cmp.Or(err, p.taken); err != nil {
			c.options.Logger.ErrorContext(ctx, "staged: a pass of the completer failed", "operation", c.runner.workflow.Name, "error", err)
		}
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.options.OnPass(p.done, err)
}
