package idempotency

import (
	"crypto/sha256"
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

// TestFormOne checks that records with fingerprints in the first form, with doubles, are still compared.
func TestFormOne(t *testing.T) {
	t.Parallel()
	take := func(op Op) fingerprints {
		p, err := takeFingerprints(op)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	inFormOne := func(text string) []byte { sum := sha256.Sum256([]byte(text)); return sum[:] }
	const version = 3
	for _, c := range []struct {
		request, stored string // stored in form 1
		same            bool
	}{
		{`{"a":12.5}`, `{"a":12.5}`, true},
		{`{"a":12.5}`, `{"a":12.6}`, false},
		{`{"a":9007199254740993.10}`, `{"a":9007199254740992}`, false},
		{`{"a":9007199254740993.10}`, `{"a":9007199254740994}`, true},
		{`{"a":1234567890123456789012}`, `{"a":1.2345678901234568e+21}`, true},
	} {
		for name, op := range map[string]Op{
			"own":     {Request: json.RawMessage(c.request), RequestVersion: version},
			"earlier": {Request: 1, Earlier: map[int]any{version: json.RawMessage(c.request)}},
		} {
			p := take(op)
			if err := p.compare(version<<canonicalBits|doublesForm, inFormOne(c.stored)); (err == nil) != c.same {
				t.Errorf("%s, %s: %v", name, c.request, err)
			}
		}
	}
	// Fingerprints of bytes are the same in both forms.
	p := take(Op{Fingerprint: []byte("x")})
	if p.compare(doublesForm, inFormOne("x")) != nil || p.compare(doublesForm, inFormOne("y")) == nil {
		t.Error("the caller's own bytes")
	}
	hasher, err := NewKeyHasher(make([]byte, MinKeySecret))
	if err != nil {
		t.Fatal(err)
	}
	p = take(Op{Request: json.RawMessage(`9007199254740993.10`)})
	hasher.fingerprints(&p)
	if p.compare(doublesForm, hasher.sum("fingerprint", inFormOne("9007199254740994"))) != nil || p.compare(doublesForm, inFormOne("9007199254740994")) == nil {
		t.Error("hashed fingerprints")
	}
}
