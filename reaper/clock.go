package reaper

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// ErrClockLeap means that the database's clock was set, or that this process
// stood still, and nothing was swept. See the package's text.
var ErrClockLeap = errors.New("reaper: the database's clock leapt")

// ClockLeapError says how far. errors.Is(err, ErrClockLeap) holds.
type ClockLeapError struct {
	// Leap is what the database's clock gained against this process's
	// stopwatch since the last look that was in order; negative: it lost.
	Leap time.Duration
	// Limit is Options.MaxClockLeap, Since the time since that look.
	Limit, Since time.Duration
}

func (e *ClockLeapError) Error() string {
	verb, by := "gained", e.Leap
	if by < 0 {
		verb, by = "lost", -by
	}
	return fmt.Sprintf("reaper: the database's clock %s %v within %v of this process's stopwatch, more than %v: nothing more is swept until it is back, or AcceptClock is called, or the program is restarted", verb, by, e.Since.Round(time.Millisecond), e.Limit)
}

// Is reports whether target is ErrClockLeap.
func (e *ClockLeapError) Is(target error) bool { return target == ErrClockLeap }

// look is one reading of the database's clock in microseconds. It was taken
// at some moment between the request and the reply.
type look struct {
	micros             int64
	requested, replied time.Time
}

// leap is what the database's clock gained between two looks beyond what the
// uncertainty of both explains.
func leap(from, to look) time.Duration {
	gained := micros(to.micros - from.micros)
	if most := to.replied.Sub(from.requested); gained > most {
		return gained - most
	}
	if least := to.requested.Sub(from.replied); gained < least {
		return max(gained, -math.MaxInt64/2) - least
	}
	return 0
}

// micros is n microseconds, or the longest duration there is.
func micros(n int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(min(max(n, -most), most)) * time.Microsecond
}

// clock compares the database's clock with the monotonic one of this process.
type clock struct {
	limit time.Duration
	read  func(ctx context.Context) (int64, error)

	mu   sync.Mutex
	last look // the last one in order
}

func readClock(d *dialect.Dialect, pool core.Querier) func(ctx context.Context) (int64, error) {
	now := core.Stmt{Name: "sweep.clock", Text: `SELECT ` + d.Now}
	return func(ctx context.Context) (n int64, err error) {
		_, err = now.QueryRow(ctx, pool, []any{&n})
		return n, err
	}
}

func (c *clock) look(ctx context.Context) (look, error) {
	l := look{requested: time.Now()}
	var err error
	l.micros, err = c.read(ctx)
	l.replied = time.Now()
	return l, err
}

// check reads the clock and refuses a leap; a look in order is what the next
// one is compared with.
func (c *clock) check(ctx context.Context) (now int64, err error) {
	l, err := c.look(ctx)
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if by := leap(c.last, l); by.Abs() > c.limit {
		return 0, &ClockLeapError{Leap: by, Limit: c.limit, Since: l.replied.Sub(c.last.requested)}
	}
	c.last = l
	return l.micros, nil
}

// accept takes the clock as it is.
func (c *clock) accept(ctx context.Context) error {
	l, err := c.look(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = l
	return nil
}

// AcceptClock takes the database's clock as it now is: what has expired by it
// is swept by the next pass. Call it after [ErrClockLeap], once the clock is
// known to be right.
func (r *Reaper) AcceptClock(ctx context.Context) error {
	return r.again(ctx, func() error { return r.clock.accept(ctx) })
}
