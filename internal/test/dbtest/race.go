package dbtest

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/race"
)

// NotUnderRace skips a test under the race detector, which checks the memory that goroutines of
// one process share and slows everything down. The reason says why the test gives the detector
// nothing to check, or is too slow.
func NotUnderRace(tb testing.TB, reason string) {
	tb.Helper()
	if race.Enabled {
		tb.Skip("not under the race detector: " + reason)
	}
}
