package reaper

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// lockedWaits bounds how often a pass waits for rows that others have locked.
// To find one among 500 takes ten.
const lockedWaits = 60

// Sweep makes one pass: it clears what had expired when it began, by the
// database's clock, and reports what it did. It ends when all of that is
// cleared, when MaxRows are, or at the first error that is not cured by
// running a batch again; then the report says what was done before, and the
// next sweep goes on from there. An error in a table of Options.Tables keeps no
// other from being cleared. A sweep that finds another one of this
// Reaper under way waits for it.
//
// Errors: [ErrClockLeap], [holdfast.ErrRetry], [holdfast.ErrUnknown] of a
// batch (it may have been cleared, and is not in the report),
// [holdfast.ErrSchema], [TableError], ctx's, the driver's.
func (r *Reaper) Sweep(ctx context.Context) (report Report, err error) {
	ctx, span := r.trace.Start(ctx, trace.Call{Name: "reaper.sweep"})
	defer func() {
		span.Rows = report.Rows()
		span.End(err, outcome)
		r.tell(ctx, report, err)
	}()
	end, err := r.begin(ctx)
	if err != nil {
		return Report{}, err
	}
	defer end()
	p := &pass{Reaper: r, ctx: ctx, left: math.MaxInt64}
	if r.options.MaxRows > 0 {
		p.left = r.options.MaxRows
	}
	start := time.Now()
	err = p.run()
	p.report.Duration = time.Since(start)
	p.report.Unrecorded = r.record(ctx, p.report, err)
	return p.report, err
}

// DryRun counts what a sweep would clear and changes nothing. It does not
// judge the clock: its cutoff shows what the clock says.
func (r *Reaper) DryRun(ctx context.Context) (report Report, err error) {
	start := time.Now()
	defer func() { report.Duration = time.Since(start) }()
	var now look
	if err := r.again(ctx, func() (err error) { now, err = r.clock.look(ctx); return err }); err != nil {
		return report, err
	}
	report.Cutoff = time.UnixMicro(now.micros).UTC()
	var failed []error
	for _, t := range r.tasks {
		began := time.Now()
		var rows, oldest int64
		err := r.again(ctx, func() (err error) {
			rows, oldest, err = t.count(ctx, r.pool, now.micros)
			return err
		})
		if err = r.explain(t, err); err != nil {
			if p := (&pass{Reaper: r, ctx: ctx}); p.ends(err) {
				return report, err
			}
			failed = append(failed, err)
			continue
		}
		done := TaskReport{Task: t.name(), Rows: rows, Duration: time.Since(began)}
		if rows > 0 {
			done.Oldest = micros(now.micros - oldest)
		}
		report.Tasks = append(report.Tasks, done)
	}
	return report, errors.Join(failed...)
}

// pass is one sweep.
type pass struct {
	*Reaper
	ctx    context.Context
	cutoff int64
	left   int64         // rows that MaxRows still allows
	rest   time.Duration // owed after the last batch
	waits  int           // for locked rows
	// How many rows the last batch was to clear, and what that took.
	wrote   int
	writing time.Duration
	floor   int64 // of the tokens, as this pass knows it to be committed
	report  Report
}

func (p *pass) run() error {
	// The reading that was checked is the one that everything is compared
	// with: a clock that leaps afterwards makes nothing due.
	if err := p.check(&p.cutoff); err != nil {
		return err
	}
	p.report.Cutoff = time.UnixMicro(p.cutoff).UTC()
	var failed []error
	for i, t := range p.tasks {
		if err := p.task(t, &p.sizes[i]); p.ends(err) {
			return err
		} else if err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// ends tells an error that ends the pass from one of a table of the program's own,
// with which nothing is wrong in the next.
func (p *pass) ends(err error) bool {
	var own *TableError
	return err != nil && (!errors.As(err, &own) || p.ctx.Err() != nil || errors.Is(err, ErrClockLeap))
}

func (p *pass) check(now *int64) error {
	return p.again(p.ctx, func() (err error) { *now, err = p.clock.check(p.ctx); return err })
}

func (p *pass) task(t task, s *size) error {
	start := time.Now()
	p.waits = 0
	most := p.options.Batch
	if own, ok := t.(*table); ok {
		most = min(most, own.most())
	}
	done := TaskReport{Task: t.name()}
	defer func() {
		done.Duration = time.Since(start)
		p.report.Tasks = append(p.report.Tasks, done)
	}()
	var after *row
	for {
		if p.left == 0 {
			p.report.More = true
			return nil
		}
		if err := sleep(p.ctx, p.rest); err != nil {
			return err
		}
		limit := int(min(int64(s.limit(most)), p.left))
		began := p.stopwatch()
		p.wrote, p.writing = 0, 0
		next, err := p.batch(t, &done, after, limit)
		p.rest = time.Duration(float64(p.stopwatch().Sub(began)) * p.options.Pace)
		s.learn(p.wrote, p.writing, p.options.BatchTime, most)
		if err != nil || next == nil {
			return p.explain(t, err)
		}
		after = next
	}
}

// batch finds rows and clears those which are still due.
func (p *pass) batch(t task, done *TaskReport, after *row, limit int) (next *row, err error) {
	var found []row
	err = p.again(p.ctx, func() (err error) {
		found, next, err = t.find(p.ctx, p.pool, p.cutoff, after, limit)
		return err
	})
	if err != nil || len(found) == 0 {
		return next, err
	}
	var now int64
	if err := p.check(&now); err != nil {
		return nil, err
	}
	for _, f := range found {
		done.Oldest = max(done.Oldest, micros(p.cutoff-f.expired))
	}
	if err := t.prepare(p, found); err != nil {
		return nil, err
	}
	began := p.stopwatch()
	cleared, err := p.clear(t, done, found)
	p.wrote, p.writing = len(found), p.stopwatch().Sub(began)
	done.Rows += cleared
	p.left -= cleared
	if err != nil {
		return nil, err
	}
	done.Batches++
	done.Passed += int64(len(found)) - cleared
	return next, nil
}

// clear writes one batch. Where a write waits for rows that others have
// locked, it gives up after lockWait; then the batch is halved until the locked
// rows stand alone, and they are passed over. So are those that a foreign key
// refers to.
func (p *pass) clear(t task, done *TaskReport, found []row) (cleared int64, err error) {
	err = p.again(p.ctx, func() error {
		err := p.transact(p.ctx, func(ctx context.Context, q core.Querier) (err error) {
			cleared, err = t.clear(ctx, q, p.cutoff, found)
			return err
		})
		if p.waitsForRows(t) && p.dialect.Classify(err) == dialect.Busy {
			return &lockedError{err}
		}
		return err
	})
	var locked *lockedError
	referenced := p.dialect.Classify(err) == dialect.Referenced
	switch {
	case err == nil:
		return cleared, nil
	case errors.As(err, &locked):
		p.waits++
		if p.waits == lockedWaits {
			return 0, &holdfast.RetryError{Attempts: p.waits, Err: locked.err}
		}
	case !referenced:
		return 0, err
	}
	if len(found) == 1 {
		if referenced {
			done.Referenced++
		}
		return 0, nil
	}
	half := len(found) / 2
	first, err := p.clear(t, done, found[:half])
	if err != nil {
		return first, err
	}
	second, err := p.clear(t, done, found[half:])
	return first + second, err
}

// waitsForRows: those of a user's own may have others that go with them.
func (p *pass) waitsForRows(t task) bool {
	_, own := t.(*table)
	return p.dialect.Sweep.WaitsForRows || own && p.dialect.Capabilities.RowLocks
}

// lockedError is a write that gave up waiting for a row; it is not to be run
// again as it was.
type lockedError struct{ err error }

func (e *lockedError) Error() string { return "reaper: a row of the batch is locked: " + e.err.Error() }
