package once

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Poll repeats read with growing pauses until it reports that it is done, or wait is over.
func Poll(ctx context.Context, wait time.Duration, read func() (done bool, err error)) error {
	end, pause := time.Now().Add(wait), core.NewBackoff()
	for {
		done, err := read()
		if err != nil || done || !time.Now().Before(end) {
			return err
		}
		bounded, cancel := context.WithDeadline(ctx, end)
		_ = pause.Sleep(bounded)
		cancel()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}
