package reaper

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// lockedWaits bounds how often one task of a pass waits for rows that other sessions have
// locked. Finding one locked row among 500 takes ten waits.
const lockedWaits = 60

// Sweep makes one pass over all tasks and reports what it did. The pass clears the rows that
// had expired when it began, by the database's clock. It ends when all of them are cleared,
// when MaxRows rows are cleared, or at the first error that running a batch again does not
// cure. After an error the report says what was done before, and the next sweep continues from
// there. An error in a table of Options.Tables does not stop the other tables. If another sweep
// of this Reaper is running, Sweep waits for it.
//
// Errors: [ErrClockJump]; [holdfast.ErrRetry]; [holdfast.ErrUnknown] of a batch, which may have
// been cleared and is not in the report; [holdfast.ErrSchema]; [TableError]; the error of ctx;
// [holdfast.ErrDenied] of a pass that cleared nothing, if the account could not clear some table; the
// driver's.
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
	if err = p.run(); err == nil && p.report.Rows() == 0 {
		err = r.mayClear(ctx)
	}
	p.report.Duration = time.Since(start)
	p.report.Unrecorded = r.record(ctx, p.report, err)
	return p.report, err
}

// DryRun counts the rows that a sweep would clear and changes nothing. It does not check the
// clock for a jump. The report's Cutoff shows the database's clock.
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
	rest   time.Duration // pause due after the last batch
	waits  int           // how often this task has waited for locked rows
	// The number of rows in the last batch, and how long its write took.
	wrote   int
	writing time.Duration
	floor   int64 // the highest floor of the tokens that this pass knows to be committed
	report  Report
}

func (p *pass) run() error {
	// Every expiry is compared with this checked reading. A clock that jumps later makes no
	// more rows due.
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

// ends reports whether err ends the pass. An error in one of the program's own tables does not:
// the next table may be fine.
func (p *pass) ends(err error) bool {
	var own *TableError
	return err != nil && (!errors.As(err, &own) || p.ctx.Err() != nil || errors.Is(err, ErrClockJump))
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

// batch finds rows and clears those that are still due.
func (p *pass) batch(t task, done *TaskReport, after *row, limit int) (next *row, err error) {
	var found []row
	err = p.again(p.ctx, func() (err error) {
		found, next, err = t.find(p.ctx, p.pool, p.cutoff, after, limit)
		return err
	})
	if err == nil && next != nil && after.repeats(next, found) {
		err = fmt.Errorf("reading %s makes no progress: the engine finds a row after itself", t.table())
	}
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

// clear writes one batch. A write that waits for rows locked by other sessions gives up after
// lockWait. The batch is then halved until each locked row stands alone, and such a row is
// passed over. A row that a foreign key refers to is passed over in the same way.
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

// waitsForRows reports whether the task's writes wait for locked rows. A delete in a program's
// own table may wait even if it skips locked rows, because other rows may be deleted with it.
func (p *pass) waitsForRows(t task) bool {
	_, own := t.(*table)
	return p.dialect.Sweep.WaitsForRows || own && p.dialect.Capabilities.RowLocks
}

// lockedError reports a write that gave up waiting for a row. The same write is not run again.
type lockedError struct{ err error }

func (e *lockedError) Error() string { return "reaper: a row of the batch is locked: " + e.err.Error() }
