package mysql

import (
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// TestStandingClock checks that a session whose clock stands still is refused, and that a
// running clock is accepted even on a slow server.
func TestStandingClock(t *testing.T) {
	t.Parallel()
	i := slices.IndexFunc(Rules, func(r dialect.Rule) bool { return r.Name == "timestamp" })
	for name, c := range map[string]struct {
		clock, server, again string
		asks, refused        bool
	}{
		"a quick server":            {clock: "1000000500000", server: "1000000500300"},
		"a slow server":             {clock: "1000000500000", server: "1000091500000", again: "1000092000000", asks: true},
		"a whole second":            {clock: "1000001000000", server: "1000001000300", again: "1000001004000", asks: true},
		"it stands, long ago":       {clock: "1000000500000", server: "1999999500000", again: "1000000500000", asks: true, refused: true},
		"it stands, a second ago":   {clock: "1000000500000", server: "1000001500000", again: "1000000500000", asks: true, refused: true},
		"it stands, ahead":          {clock: "1000000500000", server: "1000000499000", again: "1000000500000", asks: true, refused: true},
		"it stands, a whole second": {clock: "1000001000000", server: "1000001000300", again: "1000001000000", asks: true, refused: true},
	} {
		f := dialect.Facts{"clock": c.clock, "server clock": c.server}
		if asks := ReadClockAgain(f) != ""; asks != c.asks {
			t.Errorf("%s: it is read again: %t", name, asks)
		}
		f["clock again"] = c.again
		if value := Rules[i].Judge(f); (value != "") != c.refused {
			t.Errorf("%s: %q", name, value)
		}
	}
}
