package idempotency

import (
	"encoding/json"
	"math/big"
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

// TestEveryDigitIsTheRequest has numbers that one double stands for, in requests and in JSON from outside.
func TestEveryDigitIsTheRequest(t *testing.T) {
	t.Parallel()
	whole := func(s string) *big.Int { n, _ := new(big.Int).SetString(s, 10); return n }
	for _, pair := range [][2]any{
		{json.RawMessage(`{"account":1234567890123456789012}`), json.RawMessage(`{"account":1234567890123456789013}`)},
		{json.RawMessage(`{"idr":9007199254740993.10}`), json.RawMessage(`{"idr":9007199254740993.90}`)},
		{json.RawMessage(`{"id":9007199254740993.0}`), json.RawMessage(`{"id":9007199254740992.0}`)},
		{map[string]any{"account": whole("1234567890123456789012")}, map[string]any{"account": whole("1234567890123456789013")}},
		{struct{ Eth json.Number }{"1.000000000000000001"}, struct{ Eth json.Number }{"1.000000000000000002"}},
	} {
		a, err1 := takeFingerprints(Op{Request: pair[0]})
		b, err2 := takeFingerprints(Op{Request: pair[1]})
		if err1 != nil || err2 != nil || a.compare(b.version, b.own) == nil {
			t.Errorf("%s and %s are one request: %v, %v", pair[0], pair[1], err1, err2)
		}
	}
}
