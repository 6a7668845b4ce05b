package staged

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"
)

// TestLateCall: a process that stood still between the commit and the call makes none, also if the lease would be renewed.
func TestLateCall(t *testing.T) {
	for range 200 {
		for _, timeout := range []time.Duration{0, time.Hour} {
			r := &Run[*sql.Tx]{until: time.Now().Add(-time.Second)}
			ctx, end := r.during(t.Context(), "pay", time.Minute, timeout)
			if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				t.Errorf("timeout %v: the lease is over, and the call's context has not ended", timeout)
			}
			if end(); t.Failed() {
				return
			}
		}
	}
}
