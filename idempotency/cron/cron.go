// Package cron (experimental) runs a job once a tick over all replicas of a program.
//
//	job := cron.Job{Name: "close-day", Schedule: cron.Every(time.Hour, 0)}
//	err := cron.Run(ctx, store, job, func(ctx context.Context, tx *sql.Tx, tick time.Time) error {
//		_, err := tx.ExecContext(ctx, `INSERT INTO closings ...`, tick)
//		return err
//	})
//
// Each replica calls Run. The tick is the key of an operation (see package idempotency), and is read
// from the database's clock, so replicas agree on it. The job's writes and the record of the tick are
// one transaction: a tick has one effect, and is over for all replicas once it committed, however short
// the job was and however late another replica comes. If a replica crashes within the job, another one
// runs the tick again.
//
// The rules of the function of [idempotency.Do] apply: it may run more than once before one run commits,
// and has effects in the database only. A job that calls others, or takes longer than a transaction
// should, writes a message (package outbox) or begins a staged operation with [Key] as its key.
//
// # Experimental
//
// Before v1.0 the names of schedules and options may change in a minor version. The key of a tick does not, so
// that no tick runs again.
package cron

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/inside"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/options"
)

// Schedule returns the last tick at or before now, and the first one after it. It must depend on now
// alone, so that replicas agree.
type Schedule func(now time.Time) (last, next time.Time)

// The bounds of the time between two ticks: each tick leaves a record.
const (
	minEvery = 50 * time.Millisecond
	maxEvery = 100 * 366 * 24 * time.Hour
)

// Every ticks at the multiples of d since 1970 (UTC), plus offset, both in whole microseconds: a third of
// a second is 333,333 of them. d is 50 ms to 100 years of 366 days, and offset is 0 or at least 1 ms, either way.
// [Once] and [Run] refuse another job with [holdfast.ErrInvalid].
func Every(d, offset time.Duration) Schedule {
	switch {
	case every.Check("", d) != nil:
		return func(now time.Time) (last, next time.Time) { return now, now.Add(d) } // see checkTicks
	case offsets.Check("", offset.Abs()) != nil:
		return func(time.Time) (last, next time.Time) { return last, next }
	}
	return func(now time.Time) (last, next time.Time) {
		step, at := d.Microseconds(), now.UnixMicro()-offset.Microseconds()
		at -= (at%step + step) % step // also before 1970
		last = time.UnixMicro(at + offset.Microseconds()).UTC()
		return last, last.Add(time.Duration(step) * time.Microsecond)
	}
}

// Daily ticks once a day at a time of day in a time zone, also on the days on which the clock there
// changes: where the clock skips that time, the tick is as much later, but on the same date, and where it comes twice, there is
// one tick. A date that the zone has skipped as a whole has none.
func Daily(hour, minute int, zone *time.Location) Schedule {
	return func(now time.Time) (last, next time.Time) {
		y, m, d := now.In(zone).Date()
		at := func(day int) time.Time { return wall(time.Date(y, m, day, hour, minute, 0, 0, time.UTC), zone) }
		for d++; at(d).After(now); d-- { // two days may have the same tick, where the zone skips one
			next = at(d)
		}
		for last = at(d); !next.After(now); d++ {
			next = at(d)
		}
		return last, next
	}
}

// wall returns when the clocks of zone show the date and time of t. If they skip it, wall returns the moment
// at which they would have shown it without the change, or the last minute of the date.
func wall(t time.Time, zone *time.Location) time.Time {
	y, m, d := t.Date()
	at := time.Date(y, m, d, t.Hour(), t.Minute(), 0, 0, zone)
	_, offset := at.Zone()
	if shown := at.Add(time.Duration(offset) * time.Second); shown.UTC().Before(t) { // at is before the change
		at = t.Add(time.Duration(-offset) * time.Second).In(zone)
	}
	if at.Day() != d { // the clocks skip the rest of the date: its tick is a minute before that
		if change, _ := at.ZoneBounds(); !change.IsZero() && change.Add(-time.Minute).Day() == d {
			return change.Add(-time.Minute)
		}
	}
	return at
}

// Job is a job that runs once a tick.
type Job struct {
	// Owner as in [idempotency.Op]: required, unless the DB is SingleOwner.
	Owner string
	// Name is the job's name: stable, at most 123 bytes. Required.
	Name string
	// Schedule says when. Required. Only the last tick counts: if no replica ran at a tick, the
	// first one that comes back before the next tick runs it late, and earlier ones are left out.
	Schedule Schedule
}

// RunOptions configure [Run]. The zero value of each field is its default.
type RunOptions struct {
	// OnPass receives the outcome and the error of each pass, which is one call of [Once]. Default: an error is logged with Logger,
	// a rejection in the replica that ran the job only.
	OnPass func(idempotency.Outcome, error)
	// Logger logs the errors. Default: slog.Default().
	Logger *slog.Logger
}

// Key is the key of a tick, for a staged operation of the job's.
func Key(job Job, tick time.Time) string {
	return idempotency.KeyOf(job.Name, tick.UTC().Format(time.RFC3339Nano))
}

// Once runs the job for the last tick, unless some replica has done so: then the outcome is Replayed.
// If another replica runs it now, Once waits as the store's options say. next is the time until the next
// tick, by the database's clock.
//
// An error of fn rolls back and leaves the tick to the next call, in any replica. An error of
// [idempotency.Reject] ends the tick for good: it is kept as a result is, regardless of the store's RejectionTTL.
//
// A tick is not begun once the next one has come, by the database's clock, whatever has held this replica up: then
// Once runs the next one.
//
// Errors: those of [idempotency.Do]; [holdfast.ErrInvalid] also if the store forgets a key
// ([idempotency.Options].KeyTTL) before two ticks are over: the day on which the clock goes back has 25 hours.
func Once[Tx any](ctx context.Context, s *idempotency.Store[Tx], job Job, fn func(ctx context.Context, tx Tx, tick time.Time) error) (outcome idempotency.Outcome, next time.Duration, err error) {
	for {
		p, err := planned(ctx, s, job)
		if err != nil {
			return 0, 0, err
		}
		r, err := idempotency.Do(ctx, inside.Of(s).KeepsRejections(), p.op, func(ctx context.Context, tx Tx) (none struct{}, err error) {
			q, err := inside.Of(s).Access().Join(tx)
			if err != nil {
				return none, err
			}
			if now, err := clock(ctx, s, q); err != nil || !now.Before(p.until) {
				return none, cmp.Or(err, errOver)
			}
			return none, fn(ctx, tx, p.tick)
		})
		if !errors.Is(err, errOver) {
			return r.Outcome, p.next, err
		}
	}
}

// errOver rolls a tick back that is over: its record may have been forgotten.
var errOver = errors.New("cron: the tick is over")

// plan is what a replica has to do now.
type plan struct {
	op          idempotency.Op
	tick, until time.Time
	next        time.Duration
}

func planned[Tx any](ctx context.Context, s *idempotency.Store[Tx], job Job) (p plan, err error) {
	if s == nil || job.Schedule == nil {
		return p, once.Invalid("store, Job.Schedule", "one of them is nil")
	}
	if job.Name == "" {
		return p, once.Invalid("Job.Name", "is missing")
	}
	now, err := clock(ctx, s, inside.Of(s).Access().Pool)
	if err != nil {
		return p, err
	}
	last, next := job.Schedule(now)
	if err := checkTicks(last, next, now); err != nil {
		return p, err
	}
	if ttl := s.Options().KeyTTL; ttl > 0 && ttl/2 < next.Sub(last) {
		return p, once.Invalid("idempotency.Options.KeyTTL", "is shorter than two ticks, one of which could then run twice")
	}
	p = plan{idempotency.Op{Owner: job.Owner, Name: "cron " + job.Name, Key: Key(job, last), NoFingerprint: true}, last, next, next.Sub(now)}
	_, err = inside.Of(s).Check(p.op)
	return p, err
}

var (
	every   = options.Span{Least: minEvery, Most: maxEvery}
	offsets = options.Wait.Or("none").UpTo(maxEvery)
)

func checkTicks(last, next, now time.Time) error {
	if last.IsZero() && next.IsZero() {
		return once.Invalid("Job.Schedule", fmt.Sprintf("it has no ticks: the offset of Every is 0, or %v to %v either way, with a unit: 3*time.Hour, not 3", offsets.Least, offsets.Most))
	}
	if err := every.Check("Job.Schedule, the time between two ticks", next.Sub(last)); err != nil {
		return err
	}
	if last.After(now) || !next.After(now) {
		return once.Invalid("Job.Schedule", "its last tick is after now, or its next one is not")
	}
	return nil
}

// clock reads the database's clock.
func clock[Tx any](ctx context.Context, s *idempotency.Store[Tx], q core.Querier) (time.Time, error) {
	var micros int64
	d := inside.Of(s).Access().Dialect
	_, err := d.Compile("cron.now", `SELECT `+d.Now).QueryRow(ctx, q, []any{&micros})
	return time.UnixMicro(micros).UTC(), err
}

const (
	most        = time.Minute // Run looks at the database's clock that often, which may be set
	firstPause  = 100 * time.Millisecond
	longestWait = 30 * time.Second
)

// Run calls [Once] at each tick until ctx ends, and returns its cause. After an error it
// tries the tick again, after a pause that grows from a tenth of a second to half a minute; another
// replica may do so before.
//
// Errors: the cause of ctx; [holdfast.ErrInvalid] for the job, at the beginning; errors of the database
// then.
func Run[Tx any](ctx context.Context, s *idempotency.Store[Tx], job Job, fn func(ctx context.Context, tx Tx, tick time.Time) error, opts ...RunOptions) error {
	o, err := options.One(opts)
	if err != nil {
		return err
	}
	if _, err := planned(ctx, s, job); err != nil {
		return err
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	wait := firstPause
	for ctx.Err() == nil {
		outcome, next, err := Once(ctx, s, job, fn)
		if o.OnPass != nil && ctx.Err() == nil {
			o.OnPass(outcome, err)
		}
		var rejection *idempotency.Rejection
		switch {
		case err == nil, errors.As(err, &rejection), errors.Is(err, idempotency.ErrExpired):
			if rejection != nil && outcome == idempotency.Executed && o.OnPass == nil {
				o.Logger.ErrorContext(ctx, "cron: the job rejected its tick, which is over", "job", job.Name, "error", err)
			}
			wait = firstPause
			pause(ctx, min(next, most))
		case errors.Is(err, idempotency.ErrInProgress):
			pause(ctx, firstPause)
		case ctx.Err() == nil:
			if o.OnPass == nil {
				o.Logger.ErrorContext(ctx, "cron: a run failed", "job", job.Name, "error", err)
			}
			pause(ctx, wait)
			wait = min(2*wait, longestWait)
		}
	}
	return context.Cause(ctx)
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
