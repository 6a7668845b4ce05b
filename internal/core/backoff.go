package core

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Backoff pauses between attempts, from 1 ms to about 250 ms, with jitter; see also SleepAfter.
type Backoff struct {
	b      *backoff.ExponentialBackOff
	double uint // how often SleepAfter was called
}

// NewBackoff returns a Backoff at its shortest pause.
func NewBackoff() *Backoff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 2*time.Millisecond, 250*time.Millisecond
	b.RandomizationFactor, b.Multiplier = 0.5, 2
	b.Reset()
	return &Backoff{b: b}
}

// Sleep waits for the next attempt, or until ctx ends.
func (b *Backoff) Sleep(ctx context.Context) error { return Sleep(ctx, b.b.NextBackOff()) }

// maxAfter bounds the pause of SleepAfter, and maxDoubled how often it doubles: a conflict that took
// milliseconds pauses for milliseconds.
const (
	maxAfter   = 5 * time.Second
	maxDoubled = 2
)

// SleepAfter is Sleep after a transaction that was rolled back. The pause is random: at most as long as the
// transaction took, then twice and then four times as long. Transactions that ended in one deadlock, or
// waited behind it, would meet again after a pause that is short beside the time that the server takes to
// find a deadlock. The pause is at most 5 s, and a quarter of the time that ctx has left.
func (b *Backoff) SleepAfter(ctx context.Context, took time.Duration) error {
	return Sleep(ctx, b.after(ctx, took))
}

func (b *Backoff) after(ctx context.Context, took time.Duration) time.Duration {
	most := min(took, maxAfter) << min(b.double, maxDoubled)
	most = min(most, maxAfter)
	b.double++
	if end, ends := ctx.Deadline(); ends {
		most = min(most, time.Until(end)/4)
	}
	return max(b.b.NextBackOff(), rand.N(max(most, 1)))
}

// Sleep waits for d, or until ctx ends: then it returns the cause.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
