package reaper

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/internal/trace"
)

// tell tells what a pass did, and why it did not.
func (r *Reaper) tell(ctx context.Context, report Report, err error) {
	if !r.trace.On() {
		return
	}
	for _, t := range report.Tasks {
		cleared := trace.Fact{Name: trace.ReaperTask, Task: t.Task, Outcome: trace.Cleared, Count: t.Rows, Duration: t.Oldest}
		r.trace.Tell(ctx, cleared)
		if t.Passed > 0 {
			r.trace.Tell(ctx, trace.Fact{Name: trace.ReaperTask, Task: t.Task, Outcome: trace.Passed, Count: t.Passed, Duration: t.Oldest})
		}
	}
	var leap *ClockLeapError
	if errors.As(err, &leap) {
		r.trace.Tell(ctx, trace.Fact{Name: trace.ReaperRefused, Duration: leap.Leap, Err: err})
	}
}

// outcome names this package's errors.
func outcome(err error) string {
	if errors.Is(err, ErrClockLeap) {
		return trace.Refused
	}
	return ""
}
