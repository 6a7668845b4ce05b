package core

import (
	"context"
	"testing"
	"time"
)

// TestSleepAfter checks that the pauses after a rollback differ by as much as the transaction took, and
// stay within their bounds.
func TestSleepAfter(t *testing.T) {
	t.Parallel()
	ending, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for _, c := range []struct {
		ctx        context.Context //nolint:containedctx // a case
		took, most time.Duration
	}{
		{t.Context(), 0, 400 * time.Millisecond}, {t.Context(), 2 * time.Second, 2 * time.Second}, {t.Context(), time.Hour, maxAfter}, {ending, 3 * time.Second, 3 * time.Second},
	} {
		least, longest := time.Hour, time.Duration(0)
		for range 10_000 {
			d := NewBackoff().after(c.ctx, c.took)
			least, longest = min(least, d), max(longest, d)
		}
		if longest > c.most || c.took > time.Second && longest-least < c.most/2 {
			t.Errorf("after %v: pauses from %v to %v, want at most %v", c.took, least, longest, c.most)
		}
	}
	b, longest := NewBackoff(), time.Duration(0)
	for range 100 {
		longest = max(longest, b.after(t.Context(), time.Second))
	}
	if longest < 2*time.Second || longest > maxAfter {
		t.Errorf("the longest of 100 pauses in a row was %v", longest)
	}
	soon, cancelSoon := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancelSoon()
	for range 1000 {
		if d := NewBackoff().after(soon, time.Hour); d > 100*time.Millisecond {
			t.Fatalf("a pause of %v, with 400ms left", d)
		}
	}
}
