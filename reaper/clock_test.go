package reaper_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/conformance"
	"github.com/holdfast-go/holdfast/reaper"
)

// shifted is a database's clock that runs as the real one does, and is off.
type shifted struct {
	by    atomic.Int64 // µs
	reads atomic.Int32
	leap  int32 // at this reading by becomes a day
}

const day = 24 * 60 * 60 * 1_000_000

func (s *shifted) read(ctx context.Context, read func(context.Context) (int64, error)) (int64, error) {
	if s.reads.Add(1) == s.leap {
		s.by.Store(day)
	}
	n, err := read(ctx)
	return n + s.by.Load(), err
}

func onEveryHandle(t *testing.T, run func(*testing.T, string)) {
	for _, name := range []string{"sql", "sqlx", "pgx"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, name)
		})
	}
}

func TestClockLeap(t *testing.T) {
	t.Parallel()
	onEveryHandle(t, func(t *testing.T, name string) {
		switch name {
		case "sql":
			conformance.Run(t, conformance.SQL(), clockLeaps)
		case "sqlx":
			conformance.Run(t, conformance.SQLX(), clockLeaps)
		case "pgx":
			conformance.Run(t, conformance.Pgx(), clockLeaps)
		}
	})
}

// clockLeaps: ten records have expired; ten would have, and the grace of a lock
// would be over, if the clock that is a day ahead were right.
func clockLeaps[Tx any](e *conformance.Env[Tx]) {
	e.Records("due", 10, e.Now()-1_000_000)
	e.Records("live", 10, e.Now()+3_600_000_000)
	e.Locks(conformance.Lock{Name: "\x01key", Token: 1, Expires: e.Now()})
	rows := func() int {
		return e.Int(`SELECT (SELECT COUNT(*) FROM holdfast_records) + (SELECT COUNT(*) FROM holdfast_locks)`)
	}
	r := e.Reaper(reaper.Options{Batch: 4, BatchTime: reaper.MaxBatchTime, Pace: 0.01})
	s := &shifted{}
	r.SetClock(s.read)
	refused := func(what string, gained bool) {
		e.Helper()
		before := rows()
		report, err := r.Sweep(e.Ctx)
		var l *reaper.ClockLeapError
		if !errors.Is(err, reaper.ErrClockLeap) || !errors.As(err, &l) || report.Rows() != 0 || rows() != before {
			e.Fatalf("%s: %+v, %v, %d rows", what, report, err, rows())
		}
		if (l.Leap > 0) != gained || l.Leap.Abs() < 23*time.Hour || l.Leap.Abs() > 25*time.Hour || l.Limit != time.Minute {
			e.Errorf("%s: %+v", what, l)
		}
	}
	s.by.Store(day)
	refused("a day gained", true)
	refused("still a day ahead", true)
	if dry, err := r.DryRun(e.Ctx); err != nil || dry.Rows() != 21 {
		e.Errorf("the dry run shows what the clock would do: %+v, %v", dry, err)
	}
	s.by.Store(-day)
	refused("a day lost", false)
	if p := e.History(1)[0]; p.Rows != 0 || !strings.Contains(p.Error, "leapt: 2") { // 23h59m or 24h
		e.Errorf("recorded as %+v", p)
	}

	// The clock is back, and less than the bound is no leap.
	s.by.Store(30_000_000)
	s.reads.Store(0)
	// It leaps between two batches: the first is cleared, the second is not.
	// Readings: the sweep's own, and one before each write.
	s.leap = 3
	report, err := r.Sweep(e.Ctx)
	if !errors.Is(err, reaper.ErrClockLeap) || report.Rows() != 4 || rows() != 17 {
		e.Fatalf("a leap between batches: %+v, %v, %d rows", report, err, rows())
	}
	refused("after it", true)
	s.by.Store(0)
	if report, err := r.Sweep(e.Ctx); err != nil || report.Rows() != 6 || rows() != 11 {
		e.Errorf("the clock is back: %+v, %v, %d rows", report, err, rows())
	}

	// A person says that the clock is right.
	s.by.Store(day)
	refused("ahead again", true)
	if err := r.AcceptClock(e.Ctx); err != nil {
		e.Fatal(err)
	}
	if report, err := r.Sweep(e.Ctx); err != nil || report.Rows() != 11 || rows() != 0 {
		e.Errorf("accepted: %+v, %v, %d rows", report, err, rows())
	}
}

// TestSlowReplyIsNoLeap: the reply takes longer than MaxClockLeap, and the
// reading may be as old as the request.
func TestSlowReplyIsNoLeap(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), slowReply)
}

func slowReply[Tx any](e *conformance.Env[Tx]) {
	for _, late := range []bool{true, false} {
		r := e.Reaper(reaper.Options{MaxClockLeap: time.Second})
		r.SetClock(func(ctx context.Context, read func(context.Context) (int64, error)) (int64, error) {
			if late {
				time.Sleep(1500 * time.Millisecond)
			} else {
				defer time.Sleep(1500 * time.Millisecond)
			}
			return read(ctx)
		})
		for range 2 {
			if _, err := r.Sweep(e.Ctx); err != nil {
				e.Error(err)
			}
		}
	}
}
