package reaper

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/errcode"
)

// ErrClockJump means that the database's clock was set, or that this process stood still.
// Nothing was swept. See the package documentation.
var ErrClockJump = errcode.New("clock-jump", "reaper: the database's clock jumped")

// ClockJumpError says how far the clock jumped. errors.Is(err, ErrClockJump) holds.
type ClockJumpError struct {
	// Jump is what the database's clock gained against this process's monotonic clock since the
	// last accepted reading. It is negative if the clock lost time.
	Jump time.Duration
	// Limit is Options.MaxClockJump. Since is the time since that reading.
	Limit, Since time.Duration
}

func (e *ClockJumpError) Error() string {
	verb, by := "gained", e.Jump
	if by < 0 {
		verb, by = "lost", -by
	}
	return fmt.Sprintf("reaper: the database's clock %s %v within %v of this process's stopwatch, more than %v: nothing more is swept until it is back, or AcceptClock is called, or the program is restarted", verb, by, e.Since.Round(time.Millisecond), e.Limit)
}

// Is reports whether target is ErrClockJump.
func (e *ClockJumpError) Is(target error) bool { return target == ErrClockJump }

// look is one reading of the database's clock in microseconds, taken at some moment between the
// request and the reply.
type look struct {
	micros             int64
	requested, replied time.Time
}

// jump returns what the database's clock gained between two readings, beyond what the
// uncertainty of both explains.
func jump(from, to look) time.Duration {
	gained := micros(to.micros - from.micros)
	if most := to.replied.Sub(from.requested); gained > most {
		return gained - most
	}
	if least := to.requested.Sub(from.replied); gained < least {
		return max(gained, -math.MaxInt64/2) - least
	}
	return 0
}

// micros returns n microseconds, limited to the range of time.Duration.
func micros(n int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(min(max(n, -most), most)) * time.Microsecond
}

// clock compares the database's clock with this process's monotonic clock.
type clock struct {
	limit time.Duration
	read  func(ctx context.Context) (int64, error)

	mu   sync.Mutex
	last look // the last accepted reading
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

// check reads the clock and refuses a jump. An accepted reading becomes the base of the next
// comparison.
func (c *clock) check(ctx context.Context) (now int64, err error) {
	l, err := c.look(ctx)
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if by := jump(c.last, l); by.Abs() > c.limit {
		return 0, &ClockJumpError{Jump: by, Limit: c.limit, Since: l.replied.Sub(c.last.requested)}
	}
	c.last = l
	return l.micros, nil
}

// accept reads the clock and makes the reading the base of the next comparison.
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

// AcceptClock accepts the database's present clock. The next pass sweeps what has expired by
// it. Call it after [ErrClockJump], once the clock is known to be right.
func (r *Reaper) AcceptClock(ctx context.Context) error {
	return r.again(ctx, func() error { return r.clock.accept(ctx) })
}
