package lockstmt_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/dialect/lockstmt"
)

// TestSpread checks that at most half of a pool's connections run statements for one lock each.
func TestSpread(t *testing.T) {
	t.Parallel()
	b := lockstmt.Batching{Alone: 4, Spread: 16}
	for pool, want := range map[int]int{0: 16, 1: 0, 10: 5, 31: 15, 32: 16, 100: 16} {
		if got := b.SpreadOf(pool); got != want {
			t.Errorf("a pool of %d: %d, not %d", pool, got, want)
		}
	}
}
