package staged

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
)

// The pauses between the reads of an operation that a call waits for: at first and at most while it
// is in progress elsewhere, and while it is in progress here, where its end wakes.
const (
	firstPause = 5 * time.Millisecond
	maxPause   = time.Second
	localPause = 10 * time.Second
)

// await waits until an operation has ended, or waits for a person or its provider, or ctx ends. It
// queues the operation for this process's completer first.
func (s *Runner[Req, Res, Tx]) await(ctx context.Context, c *once.Checked) (res idempotency.Result[Res], err error) {
	if err := s.outside(ctx); err != nil {
		return res, err
	}
	start := time.Now()
	late := func() error {
		return fmt.Errorf("%w: %w", &idempotency.InProgressError{Waited: time.Since(start)}, context.Cause(ctx))
	}
	leave := s.local.enter(c.ID)
	defer leave()
	s.local.nudge(c.ID)
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		moved, here := s.local.look(c.ID)
		row, err := s.transitions.Read(ctx, s.transitions.Access.Pool, c.ID)
		switch {
		case err != nil && ctx.Err() != nil:
			return res, late()
		case err != nil:
			return res, err
		case row == nil || row.KeyExpired == 1:
			return res, ErrNotFound
		case row.State != ledger.Pending:
			return s.answer(c, row, idempotency.Replayed)
		case row.Accepted == 1:
			return res, settling(row)
		}
		t := time.NewTimer(pause)
		if here {
			t.Reset(localPause)
		}
		select {
		case <-t.C:
		case <-moved:
		case <-ctx.Done():
			t.Stop()
			return res, late()
		}
		t.Stop()
	}
}
