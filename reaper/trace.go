package reaper

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/internal/trace"
)

// tell reports to the tracers what a pass cleared, and a clock jump that stopped it.
func (r *Reaper) tell(ctx context.Context, report Report, err error) {
	if !r.trace.On() {
		return
	}
	for _, t := range report.Tasks {
		cleared := trace.Event{Name: trace.ReaperTask, Task: t.Task, Outcome: trace.Cleared, Count: t.Rows, Duration: t.Oldest}
		r.trace.Emit(ctx, cleared)
		if t.Passed > 0 {
			r.trace.Emit(ctx, trace.Event{Name: trace.ReaperTask, Task: t.Task, Outcome: trace.Passed, Count: t.Passed, Duration: t.Oldest})
		}
	}
	var jump *ClockJumpError
	if errors.As(err, &jump) {
		r.trace.Emit(ctx, trace.Event{Name: trace.ReaperRefused, Duration: jump.Jump, Err: err})
	}
}

// outcome names this package's errors.
func outcome(err error) string {
	if errors.Is(err, ErrClockJump) {
		return trace.Refused
	}
	return ""
}
