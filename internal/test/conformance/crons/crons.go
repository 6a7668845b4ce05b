// Package crons contains the suite of jobs that run once a tick.
package crons

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/cron"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// Suite runs the cases through one handle.
func Suite[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Helper()
	for what, f := range map[string]func(*conformance.Env[Tx]){
		"OnceATick": onceATick[Tx], "FailedRun": failedRun[Tx], "PausedReplica": pausedReplica[Tx], "Refused": refused[Tx], "RunsEachTick": runsEachTick[Tx],
		"SaysRejections": saysRejections[Tx], "Overslept": overslept[Tx],
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, h, f)
		})
	}
}

// clock is a schedule whose ticks the test makes.
type clock struct{ tick atomic.Int64 }

func (c *clock) schedule(now time.Time) (last, next time.Time) {
	last = time.Unix(c.tick.Load(), 0)
	return last, now.Add(time.Hour)
}

func job(name string, s cron.Schedule) cron.Job {
	return cron.Job{Name: name, Schedule: s}
}

func effect[Tx any](e *conformance.Env[Tx]) func(ctx context.Context, tx Tx, tick time.Time) error {
	return func(ctx context.Context, tx Tx, tick time.Time) error {
		return e.Effect(ctx, tx, tick.UTC().Format(time.RFC3339Nano))
	}
}

func name(tick int64) string { return time.Unix(tick, 0).UTC().Format(time.RFC3339Nano) }

// onceATick calls a job from several replicas at once, for several ticks.
func onceATick[Tx any](e *conformance.Env[Tx]) {
	c := &clock{}
	j := job("close-day", c.schedule)
	for tick := range int64(3) {
		c.tick.Store(tick)
		var wg sync.WaitGroup
		var executed atomic.Int32
		for range 3 {
			s := e.Store(idempotency.Options{})
			for range 2 {
				wg.Go(func() {
					outcome, next, err := cron.Once(e.Ctx, s, j, effect(e))
					if err != nil || next != time.Hour {
						e.Errorf("next in %v, %v", next, err)
					}
					if outcome == idempotency.Executed {
						executed.Add(1)
					}
				})
			}
		}
		wg.Wait()
		e.WantOnce(name(tick))
		if n := executed.Load(); n != 1 {
			e.Errorf("%d replicas say that they ran tick %d", n, tick)
		}
	}
	other := cron.Job{Name: "open-day", Schedule: c.schedule}
	if outcome, _, err := cron.Once(e.Ctx, e.Store(idempotency.Options{}), other, func(context.Context, Tx, time.Time) error { return nil }); outcome != idempotency.Executed || err != nil {
		e.Errorf("another job: %v, %v", outcome, err)
	}
}

// failedRun checks that a tick whose run failed is run again, by any replica, and that a rejection
// ends it.
func failedRun[Tx any](e *conformance.Env[Tx]) {
	boom := errors.New("boom")
	j := job("close-day", (&clock{}).schedule)
	for _, fails := range []error{boom, nil} {
		_, _, err := cron.Once(e.Ctx, e.Store(idempotency.Options{}), j, func(ctx context.Context, tx Tx, tick time.Time) error {
			return errors.Join(effect(e)(ctx, tx, tick), fails)
		})
		if !errors.Is(err, fails) {
			e.Error(err)
		}
	}
	e.WantOnce(name(0))
	var rejection *idempotency.Rejection
	for range 2 {
		_, _, err := cron.Once(e.Ctx, e.Store(idempotency.Options{}), job("never", (&clock{}).schedule), func(context.Context, Tx, time.Time) error {
			return idempotency.Reject("holiday", "the bank is closed")
		})
		if !errors.As(err, &rejection) || rejection.Code != "holiday" {
			e.Error(err)
		}
	}
}

// saysRejections runs two replicas whose job rejects its tick. The tick is over for good, so the replica that
// ran the job logs why, once, and the other one, which has the same rejection from the record, logs nothing.
func saysRejections[Tx any](e *conformance.Env[Tx]) {
	var logs [2]bytes.Buffer
	for i := range logs {
		ctx, stop := context.WithCancel(e.Ctx)
		passes := 0
		j := job("close-day", func(now time.Time) (last, next time.Time) { // Run asks for the ticks at its beginning, and in each pass
			if passes++; passes > 3 {
				stop()
			}
			return time.Unix(0, 0), now.Add(50 * time.Millisecond)
		})
		err := cron.Run(ctx, e.Store(idempotency.Options{}), j, func(context.Context, Tx, time.Time) error {
			return idempotency.Reject("ledger-does-not-balance", "off by 1250")
		}, cron.RunOptions{Logger: slog.New(slog.NewTextHandler(&logs[i], nil))})
		if !errors.Is(err, context.Canceled) {
			e.Error(err)
		}
	}
	if first := logs[0].String(); strings.Count(first, "\n") != 1 || !strings.Contains(first, "close-day") || !strings.Contains(first, "ledger-does-not-balance") {
		e.Errorf("the replica that ran the job logged %q, want one line with the job and the code", first)
	}
	if logs[1].Len() > 0 {
		e.Errorf("the other replica logged %q", logs[1].String())
	}
}

// pausedReplica pauses a replica within the job until the next tick has begun. Its tick has one
// effect, and the other replica runs the next one at the same time, where the engine has more than one writer.
func pausedReplica[Tx any](e *conformance.Env[Tx]) {
	c := &clock{}
	j := job("close-day", c.schedule)
	inside, wake := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _, err := cron.Once(e.Ctx, e.Store(idempotency.Options{}), j, func(ctx context.Context, tx Tx, tick time.Time) error {
			err := effect(e)(ctx, tx, tick)
			close(inside)
			<-wake
			return err
		})
		if err != nil {
			e.Error(err)
		}
	})
	<-inside
	_, _, err := cron.Once(e.Ctx, e.Store(idempotency.Options{Wait: time.Millisecond}), j, effect(e))
	if !errors.Is(err, idempotency.ErrInProgress) && !errors.Is(err, holdfast.ErrRetry) { // SQLite knows one writer, and not of what
		e.Errorf("while another replica runs it: %v", err)
	}
	c.tick.Store(1)
	if e.DB.Capabilities().RowLocks {
		_, _, err := cron.Once(e.Ctx, e.Store(idempotency.Options{}), j, effect(e))
		e.Check(err)
		e.WantOnce(name(1))
	}
	close(wake)
	wg.Wait()
	e.WantOnce(name(0))
}

// overslept holds a replica up between its look at the clock and its claim, until the next tick has come. By then
// the record of its tick may have been forgotten, so it runs the next one.
func overslept[Tx any](e *conformance.Env[Tx]) {
	var plans atomic.Int32
	planned := make(chan struct{})
	j := job("close-day", func(now time.Time) (last, next time.Time) {
		switch plans.Add(1) {
		case 1:
			return time.Unix(0, 0), now.Add(time.Hour)
		case 2: //nolint:mnd // the replica that is held up
			close(planned)
			return time.Unix(0, 0), now.Add(50 * time.Millisecond)
		}
		return time.Unix(1, 0), now.Add(time.Hour)
	})
	s := e.Store(idempotency.Options{Wait: dbtest.Hang})
	inside, boom := make(chan struct{}), errors.New("boom")
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, _, err := cron.Once(e.Ctx, s, j, func(context.Context, Tx, time.Time) error {
			close(inside)
			<-planned
			time.Sleep(100 * time.Millisecond) // the tick passes
			return boom
		}); !errors.Is(err, boom) {
			e.Error(err)
		}
	})
	<-inside
	if outcome, _, err := cron.Once(e.Ctx, e.Store(idempotency.Options{Wait: dbtest.Hang}), j, effect(e)); err != nil || outcome != idempotency.Executed {
		e.Errorf("%v, %v", outcome, err)
	}
	wg.Wait()
	if n := e.Effects(name(0)); n != 0 {
		e.Errorf("a tick that was over ran %d times", n)
	}
	e.WantOnce(name(1))
}

// runsEachTick lets several replicas run a job by the database's clock, some of whose runs fail.
func runsEachTick[Tx any](e *conformance.Env[Tx]) {
	ctx, stop := context.WithCancel(e.Ctx)
	var wg sync.WaitGroup
	var runs atomic.Int32
	for range 3 {
		s := e.Store(idempotency.Options{})
		wg.Go(func() {
			err := cron.Run(ctx, s, job("often", cron.Every(50*time.Millisecond, 0)), func(ctx context.Context, tx Tx, tick time.Time) error {
				if runs.Add(1)%5 == 0 {
					return errors.New("a run that fails")
				}
				return effect(e)(ctx, tx, tick)
			}, cron.RunOptions{Logger: slog.New(slog.DiscardHandler)})
			if !errors.Is(err, context.Canceled) {
				e.Error(err)
			}
		})
	}
	e.Eventually("ten ticks are over", func() bool { return e.Int(`SELECT COUNT(*) FROM effects`) >= 10 })
	stop()
	wg.Wait()
	if all, ticks := e.Int(`SELECT COUNT(*) FROM effects`), e.Int(`SELECT COUNT(DISTINCT k) FROM effects`); all != ticks {
		e.Errorf("%d effects of %d ticks", all, ticks)
	}
}

func refused[Tx any](e *conformance.Env[Tx]) {
	s := e.Store(idempotency.Options{})
	good := cron.Every(time.Hour, 0)
	for what, c := range map[string]struct {
		s   *idempotency.Store[Tx]
		job cron.Job
	}{
		"no store": {nil, job("a", good)}, "no name": {s, job("", good)}, "a long name": {s, job(strings.Repeat("a", 124), good)}, "no schedule": {s, job("a", nil)},
		"an owner":         {s, cron.Job{Owner: "shop", Name: "a", Schedule: good}},
		"a tick to come":   {s, job("a", func(now time.Time) (time.Time, time.Time) { return now.Add(time.Hour), now.Add(2 * time.Hour) })},
		"no next tick":     {s, job("a", func(now time.Time) (time.Time, time.Time) { return now, now })},
		"keys that expire": {e.Store(idempotency.Options{ResultTTL: time.Minute, KeyTTL: time.Minute}), job("a", good)},
		"keys that expire on the day of 25 hours": {e.Store(idempotency.Options{ResultTTL: time.Minute, KeyTTL: 24 * time.Hour}), job("a", cron.Daily(2, 30, time.UTC))},
	} {
		if err := cron.Run(e.Ctx, c.s, c.job, effect(e)); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%s: %v", what, err)
		}
	}
}
