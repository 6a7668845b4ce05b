package options

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/errcode"
)

const (
	day = 24 * time.Hour
	// Century is the longest time that means anything.
	Century = 100 * 366 * day
)

// Span is the bounds of a duration. A duration below Least is mostly a number without its unit, which
// counts nanoseconds.
type Span struct {
	Least, Most time.Duration
	// Zero says what 0 means. If it is empty, 0 is refused.
	Zero string
}

// The bounds of the durations of the public API, by what they are for. Their floors are above a year in
// seconds (31.5 ms) for what is kept, and above a quarter of an hour in milliseconds (0.9 ms) for what is waited for.
var (
	Wait        = Span{time.Millisecond, 366 * day, "the default"}
	LockTimeout = Span{time.Millisecond, time.Hour, "the default"}
	Life        = Span{50 * time.Millisecond, Century, "for ever"}
	Lease       = Span{50 * time.Millisecond, day, "the default"}
	Call        = Span{time.Millisecond, 30 * day, "the default"}
	Pause       = Span{time.Millisecond, day, "the default"}
	Interval    = Span{10 * time.Millisecond, 7 * day, ""}
)

// Or returns s with another meaning of 0; empty if 0 is refused.
func (s Span) Or(zero string) Span {
	s.Zero = zero
	return s
}

// UpTo returns s with another maximum.
func (s Span) UpTo(most time.Duration) Span {
	s.Most = most
	return s
}

// Check returns a [errcode.InputError] if d is out of bounds.
func (s Span) Check(field string, d time.Duration) error {
	if d >= s.Least && d <= s.Most || d == 0 && s.Zero != "" {
		return nil
	}
	problem := fmt.Sprintf("%v is not between %v and %v", d, s.Least, s.Most)
	if s.Zero != "" {
		problem += ", or 0 (" + s.Zero + ")"
	}
	if d > 0 && d < s.Least {
		problem += ": a number without a unit counts nanoseconds, so write a unit, such as 30*time.Second"
	}
	return errcode.Invalid(field, problem)
}

// Size is the bounds of a number. Unit says what it counts.
type Size struct {
	Least, Most int64
	Unit        string
	// Zero says what 0 means. If it is empty, 0 is refused.
	Zero string
}

// The bounds of sizes that several packages take.
var (
	Attempts = Size{1, 1_000_000, "attempts", "the default"}
	Bytes    = Size{1 << 10, 1 << 30, "bytes", "the default"}
	Many     = Size{1, 10_000, "", "the default"}
	Rows     = Size{1, 1_000_000_000_000, "rows", "no bound"}
)

// UpTo returns s with another maximum.
func (s Size) UpTo(most int64) Size {
	s.Most = most
	return s
}

// Of returns s with another unit.
func (s Size) Of(unit string) Size {
	s.Unit = unit
	return s
}

// Or returns s with another meaning of 0; empty if 0 is refused.
func (s Size) Or(zero string) Size {
	s.Zero = zero
	return s
}

// Check returns a [errcode.InputError] if n is out of bounds.
func (s Size) Check(field string, n int64) error {
	if n >= s.Least && n <= s.Most || n == 0 && s.Zero != "" {
		return nil
	}
	problem := fmt.Sprintf("%d is not between %d and %d %s", n, s.Least, s.Most, s.Unit)
	if s.Zero != "" {
		problem += ", or 0 (" + s.Zero + ")"
	}
	return errcode.Invalid(field, problem)
}
