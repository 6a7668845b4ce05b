//go:build unix

package campaign

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestClientClock checks that a process's wall clock moves while its monotonic clock does not.
func TestClientClock(t *testing.T) {
	if !canMoveClock {
		t.Skip("a client's clock cannot be moved on this architecture")
	}
	const variable = "HOLDFAST_CAMPAIGN_CLOCK"
	if os.Getenv(variable) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestClientClock$", "-test.v")
		cmd.Env = append(os.Environ(), variable+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestClientClock") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	begin := time.Now()
	for _, by := range []time.Duration{time.Hour, -90 * time.Second, -time.Millisecond, 1500 * time.Millisecond, 0} {
		before := time.Now()
		machine := begin.Round(0).Add(time.Since(begin))
		moveClock(by)
		now := time.Now()
		if off := now.Round(0).Sub(machine) - by; off < -10*time.Millisecond || off > time.Second {
			t.Errorf("moved by %v it is off by %v", by, off)
		}
		if took := now.Sub(before); took < 0 || took > time.Second {
			t.Errorf("moved by %v the stopwatch says %v", by, took)
		}
	}
}
