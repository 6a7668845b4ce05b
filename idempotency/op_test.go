package idempotency

import (
	"encoding/hex"
	"encoding/json"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// FuzzKeyOf checks that different parts never give the same key.
func FuzzKeyOf(f *testing.F) {
	f.Add("a/b", "c", "a", "b/c")
	f.Add("%2F", "", "/", "")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		if KeyOf(a, b) == KeyOf(c, d) && (a != c || b != d) {
			t.Errorf("(%q, %q) and (%q, %q) are one key", a, b, c, d)
		}
		if KeyOf(a, b) == KeyOf(c) {
			t.Errorf("(%q, %q) and (%q) are one key", a, b, c)
		}
	})
}

// FuzzHashKey checks that two scopes never share a hash because of how their texts join.
func FuzzHashKey(f *testing.F) {
	f.Add("a", "bc", "ab", "c")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		if once.HashKey(a, b) == once.HashKey(c, d) && (a != c || b != d) {
			t.Errorf("(%q, %q) and (%q, %q) share a hash", a, b, c, d)
		}
	})
}

// TestStates checks which states are final, and how a lookup that found one is told.
func TestStates(t *testing.T) {
	t.Parallel()
	final := []State{StateSucceeded, StateRejected, StateSucceededExpired, StateRejectedExpired}
	for s := StateAbsent; s <= StateRejectedExpired; s++ {
		if s.Final() != slices.Contains(final, s) {
			t.Errorf("%v is final: %t", s, s.Final())
		}
		want := trace.Done
		if s == StateAbsent {
			want = trace.NotFound
		}
		if got := nameOf(s, nil); got != want {
			t.Errorf("a lookup that found %v is told as %q", s, got)
		}
	}
}

// TestCanonicalRefusesBrokenText uses texts that encoding/json would turn into the same
// request.
func TestCanonicalRefusesBrokenText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"\xff", "a\xfe", "\xed\xa0\x80"} {
		if b, err := Canonical(text); err == nil {
			t.Errorf("%q is %s", text, b)
		}
	}
	// JSON from outside: a decoder replaces bytes that are not UTF-8, and half of a surrogate
	// pair, with U+FFFD.
	for _, text := range []string{
		"\"\xff\"", "{\"a\":\"x\xfe\"}", "{\"\xff\":1}", `"\ud800"`, `"\ud800x"`, `"\udc00"`, `"\ud800\ud800"`, `"\uDC00\uD800"`, `"\\\ud800"`, `{"\udfff":1}`,
	} {
		if b, err := Canonical(json.RawMessage(text)); err == nil {
			t.Errorf("%q is %s", text, b)
		}
	}
	for _, text := range []string{`"\ud83d\ude00"`, `"\\ud800"`, `"\\\\ud800"`, `"\uD83D\uDE00\ud83d\ude00"`} {
		if _, err := Canonical(json.RawMessage(text)); err != nil {
			t.Errorf("%q is good JSON: %v", text, err)
		}
	}
	for _, text := range []string{"\ufffd", `C:\ufffd`, `\\ufffd`} {
		if _, err := Canonical(text); err != nil {
			t.Errorf("%q is good text: %v", text, err)
		}
	}
}

// TestFingerprintIsStable pins the bytes of a fingerprint, which must survive deployments.
func TestFingerprintIsStable(t *testing.T) {
	t.Parallel()
	p, err := takeFingerprints(Op{Request: map[string]any{"order": "42", "amount": "12.50"}})
	if err != nil {
		t.Fatal(err)
	}
	if p.version != 2 || storedVersion(maxRequestVersion) > 32767 {
		t.Errorf("stored versions: %d, %d", p.version, storedVersion(maxRequestVersion))
	}
	b := p.own
	c, _ := Canonical(map[string]any{"order": "42", "amount": "12.50"})
	if string(c) != `{"amount":"12.50","order":"42"}` || len(b) != 32 {
		t.Errorf("%s, %x", c, b)
	}
	const wantPrint, wantHash = "742fc0fb6404a97e1abb9110177a167ac47bf6f78232a90b8a605d9d083c7d0c", "de63d978a771764692b65f29573a56952e8a5693c3c3f5503c405f7c0f6f6d12"
	if got := hex.EncodeToString(b); got != wantPrint {
		t.Errorf("the fingerprint changed: %s", got)
	}
	hash := once.HashKey("default", "t", "refund", "42/1")
	if got := hex.EncodeToString(hash[:]); got != wantHash {
		t.Errorf("the key's hash changed: %s", got)
	}
}
