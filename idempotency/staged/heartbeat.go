package staged

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
)

// during returns the context of an external call, which ends before the lease does. With a timeout
// the lease is renewed until then. end stops that, and must be called before the next statement.
func (r *Run[Tx]) during(ctx context.Context, step string, lease, timeout time.Duration) (outside context.Context, end func()) {
	late := fmt.Errorf("staged: step %q: the lease ends: %w", step, context.DeadlineExceeded)
	// Also with a timeout, a lease that is over allows no call: the goroutine below might notice too late.
	if last := r.until.Add(-lease / 10); timeout == 0 || !time.Now().Before(last) {
		return context.WithDeadlineCause(ctx, last, late)
	}
	slow := fmt.Errorf("staged: step %q: the call takes more than %v: %w", step, timeout, context.DeadlineExceeded)
	bounded, stop := context.WithTimeoutCause(ctx, timeout, slow)
	outside, cancel := context.WithCancelCause(bounded)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.renew(outside, cancel, step, lease, late)
	}()
	return outside, func() {
		stop()
		<-ended
		cancel(nil)
	}
}

// renew renews the lease three times in its duration, until ctx ends. If the lease cannot be renewed
// in time, or the operation is lost, it cancels the call.
func (r *Run[Tx]) renew(ctx context.Context, cancel context.CancelCauseFunc, step string, lease time.Duration, late error) {
	var failed error // of the last renewal
	tick := time.NewTicker(lease / 3)
	defer tick.Stop()
	for {
		end := time.NewTimer(time.Until(r.until.Add(-lease / 10)))
		select {
		case <-ctx.Done():
			end.Stop()
			return
		case <-end.C:
			if failed != nil {
				late = fmt.Errorf("%w; its renewal: %w", late, failed)
			}
			cancel(late)
			return
		case <-tick.C:
			end.Stop()
		}
		start := time.Now()
		sent, done := context.WithDeadline(ctx, r.until.Add(-lease/10))
		mine, err := r.transitions.renew(sent, r, lease)
		done()
		switch {
		case err != nil: // tried again at the next tick
			if failed == nil || !errors.Is(err, context.DeadlineExceeded) { // the end of the lease cuts the last one off
				failed = err
			}
		case mine:
			r.until, failed = start.Add(lease), nil
		default:
			cancel(&StaleError{Step: step, Token: r.token, State: idempotency.StateInProgress})
			return
		}
	}
}
