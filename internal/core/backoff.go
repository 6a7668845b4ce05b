package core

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Backoff pauses between attempts, from 1 ms to about 250 ms, with jitter.
type Backoff struct{ b *backoff.ExponentialBackOff }

// NewBackoff returns a Backoff at its shortest pause.
func NewBackoff() *Backoff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 2*time.Millisecond, 250*time.Millisecond
	b.RandomizationFactor, b.Multiplier = 0.5, 2
	b.Reset()
	return &Backoff{b}
}

// Sleep waits for the next attempt, or until ctx ends.
func (b *Backoff) Sleep(ctx context.Context) error {
	t := time.NewTimer(b.b.NextBackOff())
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
