package dbtest

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// VerifyNoLeaks runs the tests of a package and fails them when goroutines are
// left over: call it from TestMain. Nothing is ignored but what options say: a
// pool's goroutines are gone once the pool is closed. It drops what Prepared keeps.
func VerifyNoLeaks(m *testing.M, options ...goleak.Option) {
	goleak.VerifyTestMain(m, append(options, goleak.Cleanup(func(code int) {
		dropSpare()
		os.Exit(code)
	}))...)
}
