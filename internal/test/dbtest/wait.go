package dbtest

import (
	"os"
	"testing"
	"time"
)

// No test depends on the speed of the machine. A test waits for an event, at most Hang. A call
// that promises to end within a bound may take Slack more. Rates, curves and memory are measured
// only if AtScale reports true.
const (
	// Hang bounds the wait for an event. Only a test that hangs reaches it.
	Hang = 3 * time.Minute
	// Slack is how much longer than its bound a call may take on a busy machine. The waits that
	// such a call must not wait for are longer: InnoDB's is 50 s.
	Slack = 40 * time.Second

	scaleVariable   = "HOLDFAST_TEST_SCALE"
	nightlyVariable = "HOLDFAST_TEST_NIGHTLY"
)

// Eventually waits until ok returns true, and fails the test after Hang. The longer it has waited,
// the longer it pauses, so that tests that wait leave the servers to those that work.
func Eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for start := time.Now(); !ok(); {
		waited := time.Since(start)
		if waited > Hang {
			tb.Fatalf("not within %v: %s", Hang, what)
		}
		time.Sleep(min(max(waited/8, 2*time.Millisecond), 100*time.Millisecond))
	}
}

// AtScale reports whether the test should measure: `make scale` sets HOLDFAST_TEST_SCALE=1 and
// runs one package at a time.
func AtScale() bool { return os.Getenv(scaleVariable) != "" }

// OnlyAtScale skips a test of rates, curves or memory unless `make scale` runs it.
func OnlyAtScale(tb testing.TB) {
	tb.Helper()
	if !AtScale() {
		tb.Skipf("it measures: make scale, or %s=1", scaleVariable)
	}
}

// Nightly reports whether the test should take its long form: `make nightly` sets
// HOLDFAST_TEST_NIGHTLY=1.
func Nightly() bool { return os.Getenv(nightlyVariable) != "" }

// OnlyNightly skips a test that needs luck to see what it looks for, unless `make nightly` runs it.
// The reason says what it waits for.
func OnlyNightly(tb testing.TB, reason string) {
	tb.Helper()
	if !Nightly() {
		tb.Skipf("%s: make nightly, or %s=1", reason, nightlyVariable)
	}
}
