package dbtest

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
)

var exactCleanup bool

// ExactCleanup keeps core.CleanupTimeout as it is: for TestMain of a package that tests it. In
// other packages cleanup may take Slack.
func ExactCleanup() { exactCleanup = true }

// VerifyNoLeaks runs the tests of a package and fails if goroutines remain: call it from
// TestMain. It ignores only the goroutines whose innermost functions are named: a closed pool
// has none. It also drops the databases that Prepared keeps.
func VerifyNoLeaks(m *testing.M, ignored ...string) {
	if !exactCleanup {
		core.SetCleanupBound(Slack)
	}
	code := m.Run()
	dropSpare()
	endAdmin()
	if code == 0 {
		if found := remaining(Slack, append(ignored, "os/signal.signal_recv", "os/signal.loop")); len(found) > 0 {
			fmt.Fprintf(os.Stderr, "%d goroutines remain after the tests:\n\n%s\n", len(found), strings.Join(found, "\n\n"))
			code = 1
		}
	}
	os.Exit(code)
}

// remaining waits until no goroutine remains, and returns those that do when the time is over.
func remaining(within time.Duration, ignored []string) (found []string) {
	start := time.Now()
	for pause := time.Microsecond; ; pause = min(2*pause, 100*time.Millisecond) {
		if found = goroutines(ignored); len(found) == 0 || time.Since(start) > within {
			return found
		}
		time.Sleep(pause)
	}
}

// goroutines returns the stacks of all goroutines but the caller's and those whose innermost
// functions are ignored.
func goroutines(ignored []string) (stacks []string) {
	all := make([]byte, 1<<16)
	n := runtime.Stack(all, true)
	for n == len(all) {
		all = make([]byte, 2*len(all))
		n = runtime.Stack(all, true)
	}
	for _, stack := range strings.Split(strings.TrimSpace(string(all[:n])), "\n\n")[1:] { // the first one is the caller's
		_, calls, _ := strings.Cut(stack, "\n")
		innermost, _, _ := strings.Cut(calls, "\n")
		if name := innermost[:max(0, strings.LastIndexByte(innermost, '('))]; !slices.Contains(ignored, name) {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}
