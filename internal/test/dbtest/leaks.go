package dbtest

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// VerifyNoLeaks runs the tests of a package and fails if goroutines remain: call it from
// TestMain. It ignores only the goroutines that options name: a closed pool has none. It also
// drops the databases that Prepared keeps.
func VerifyNoLeaks(m *testing.M, options ...goleak.Option) {
	goleak.VerifyTestMain(run(func() int {
		code := m.Run()
		dropSpare()
		endAdmin()
		return code
	}), append(options, goleak.Cleanup(os.Exit))...)
}

// run is a goleak.TestingM.
type run func() int

func (r run) Run() int { return r() }
