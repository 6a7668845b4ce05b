package dbtest

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/core"
)

var exactCleanup bool

// ExactCleanup keeps holdfast.CleanupTimeout as it is: for TestMain of a package that tests it. In
// other packages cleanup may take Slack.
func ExactCleanup() { exactCleanup = true }

// VerifyNoLeaks runs the tests of a package and fails if goroutines remain: call it from
// TestMain. It ignores only the goroutines that options name: a closed pool has none. It also
// drops the databases that Prepared keeps.
func VerifyNoLeaks(m *testing.M, options ...goleak.Option) {
	if !exactCleanup {
		core.SetCleanupBound(Slack)
	}
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
