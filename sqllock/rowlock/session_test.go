package rowlock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
)

// TestReleaseWithoutAnswer releases a lock whose COMMIT is not answered in time. What it says stays, also when the
// answer comes.
func TestReleaseWithoutAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &SessionLock{key: "k", ended: make(chan struct{})}
		h.ctx, h.cancel = context.WithCancelCause(t.Context())
		begun := time.Now()
		first := h.Release(t.Context())
		if !errors.Is(first, ErrLost) || !errors.Is(first, context.DeadlineExceeded) || time.Since(begun) != core.CleanupBound() {
			t.Errorf("%v after %v", first, time.Since(begun))
		}
		close(h.ended)
		if again := h.Release(t.Context()); again != first { //nolint:errorlint // the same
			t.Errorf("then %v", again)
		}
	})
}
