package idempotency

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"
)

// TestFingerprintMemory checks that the memory used for any request is proportional to the
// request's size.
func TestFingerprintMemory(t *testing.T) { //nolint:paralleltest // it reads the heap's counters
	const n = 1 << 20
	type request struct{ Text string }
	for name, c := range map[string]struct {
		request any
		most    float64 // bytes allocated per byte of the request
	}{
		"JSON from outside":  {json.RawMessage(`"` + strings.Repeat("<", n) + `"`), 1},
		"escapes":            {json.RawMessage(`"` + strings.Repeat(`\u003c`, n/6) + `"`), 1},
		"members":            {json.RawMessage("{" + strings.Repeat(`"":0,`, n/5) + `"":0}`), 16},
		"a value of its own": {request{strings.Repeat("<", n)}, 8},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := takeFingerprints(Op{Request: c.request})
		runtime.ReadMemStats(&after)
		if took := float64(after.TotalAlloc-before.TotalAlloc) / n; err != nil || took > c.most {
			t.Errorf("%s: %.1f bytes a byte, %v", name, took, err)
		}
	}
}
