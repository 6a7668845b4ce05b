package reaper_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/reaper"
)

// shifted is a database clock that runs at the real rate, but with an offset.
type shifted struct {
	by    atomic.Int64 // µs
	reads atomic.Int32
	jump  int32 // at this reading, by becomes a day
}

const day = 24 * 60 * 60 * 1_000_000

func (s *shifted) read(ctx context.Context, read func(context.Context) (int64, error)) (int64, error) {
	if s.reads.Add(1) == s.jump {
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

func TestClockJump(t *testing.T) {
	t.Parallel()
	onEveryHandle(t, func(t *testing.T, name string) {
		switch name {
		case "sql":
			conformance.Run(t, conformance.SQL(), clockJumps)
		case "sqlx":
			conformance.Run(t, conformance.SQLX(), clockJumps)
		case "pgx":
			conformance.Run(t, conformance.Pgx(), clockJumps)
		}
	})
}

// clockJumps has ten expired records. Ten more, and the grace period of a lock, would also be
// over if the clock, which is a day ahead, were right.
func clockJumps[Tx any](e *conformance.Env[Tx]) {
	e.Records("due", 10, e.Now()-1_000_000)
	e.Records("live", 10, e.Now()+3_600_000_000)
	e.Locks(conformance.Lock{Name: "\x01key", Token: 1, Expires: e.Now()})
	rows := func() int {
		return e.Int(`SELECT (SELECT COUNT(*) FROM holdfast_records) + (SELECT COUNT(*) FROM holdfast_locks)`)
	}
	r := e.Reaper(reaper.Options{Batch: 4, BatchTime: time.Minute, Pace: 0.01})
	s := &shifted{}
	r.SetClock(s.read)
	refused := func(what string, gained bool) {
		e.Helper()
		before := rows()
		report, err := r.Sweep(e.Ctx)
		var l *reaper.ClockJumpError
		if !errors.Is(err, reaper.ErrClockJump) || !errors.As(err, &l) || report.Rows() != 0 || rows() != before {
			e.Fatalf("%s: %+v, %v, %d rows", what, report, err, rows())
		}
		if (l.Jump > 0) != gained || l.Jump.Abs() < 23*time.Hour || l.Jump.Abs() > 25*time.Hour || l.Limit != time.Minute {
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
	if p := e.History(1)[0]; p.Rows != 0 || !strings.Contains(p.Error, "jumped: 2") { // 23h59m or 24h
		e.Errorf("recorded as %+v", p)
	}

	// The clock is right again, and a shift below the bound is not a jump.
	s.by.Store(30_000_000)
	s.reads.Store(0)
	// The clock jumps between two batches: the first batch is cleared, the second is not.
	// Readings: one at the start of the sweep, and one before each write.
	s.jump = 3
	report, err := r.Sweep(e.Ctx)
	if !errors.Is(err, reaper.ErrClockJump) || report.Rows() != 4 || rows() != 17 {
		e.Fatalf("a jump between batches: %+v, %v, %d rows", report, err, rows())
	}
	refused("after it", true)
	s.by.Store(0)
	if report, err := r.Sweep(e.Ctx); err != nil || report.Rows() != 6 || rows() != 11 {
		e.Errorf("the clock is back: %+v, %v, %d rows", report, err, rows())
	}

	// An operator confirms that the clock is right.
	s.by.Store(day)
	refused("ahead again", true)
	if err := r.AcceptClock(e.Ctx); err != nil {
		e.Fatal(err)
	}
	if report, err := r.Sweep(e.Ctx); err != nil || report.Rows() != 11 || rows() != 0 {
		e.Errorf("accepted: %+v, %v, %d rows", report, err, rows())
	}
}

// TestSlowReplyIsNoJump delays the reply by more than MaxClockJump. The reading may then be as
// old as the request, so this is not a jump.
func TestSlowReplyIsNoJump(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), slowReply)
}

func slowReply[Tx any](e *conformance.Env[Tx]) {
	for _, late := range []bool{true, false} {
		r := e.Reaper(reaper.Options{MaxClockJump: time.Second})
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
