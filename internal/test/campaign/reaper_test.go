//go:build unix

package campaign

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-go/holdfast/reaper"
)

// runReaper sweeps in one client all the time. Its grace is as short as possible: when the clock
// leaps, it deletes the rows of locks that others use. A leap refuses its sweeps, until a person
// accepts the clock: here at once.
func (c *client[Tx]) runReaper(ctx context.Context) {
	if c.Client != 0 {
		return
	}
	quiet := slog.New(slog.DiscardHandler)
	for ctx.Err() == nil {
		r, err := reaper.New(ctx, c.db, reaper.Options{LockGrace: time.Minute, Holder: fmt.Sprint("client ", c.Client, ".", c.Life)})
		if err != nil {
			time.Sleep(100 * time.Millisecond) // the server may be down
			continue
		}
		_ = r.Run(ctx, reaper.RunOptions{Every: 200 * time.Millisecond, Logger: quiet, OnPass: func(_ reaper.Report, err error) {
			switch {
			case err == nil:
				c.count(reap, 1)
			case errors.Is(err, reaper.ErrClockJump):
				_ = r.AcceptClock(ctx)
			}
			if c.Control == reapEarly {
				_ = c.db.InTx(ctx, func(ctx context.Context, tx Tx) error {
					return c.some(ctx, tx, `DELETE FROM holdfast_records WHERE state = 2`)
				})
			}
		}})
	}
}
