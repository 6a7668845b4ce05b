package idempotency

import (
	"strings"
	"testing"
)

// FuzzHashedKey checks that only texts that Key has returned stay as they are: no caller can name, or make, the
// hash of another key without the secret.
func FuzzHashedKey(f *testing.F) {
	h, err := NewKeyHasher([]byte(strings.Repeat("s", 32)))
	if err != nil {
		f.Fatal(err)
	}
	other, err := NewKeyHasher([]byte(strings.Repeat("t", 32)))
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{``, `a`, hashedKey, hashedKey + `AAAA`, other.Key("a"), h.Key("a") + "A", h.Key("a")[:60], strings.ToUpper(h.Key("a"))} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, key string) {
		kept := h.Key(key)
		if kept == key && key != h.Key("a") {
			t.Fatalf("%q counts as made", key)
		}
		if again := h.Key(kept); again != kept || len(kept) != len(h.Key("a")) {
			t.Fatalf("%q became %q, then %q", key, kept, again)
		}
		if other.Key(kept) == kept {
			t.Fatalf("another secret has made %q", kept)
		}
		if isToken(key) && (len(key) != 32 || strings.Trim(strings.ToLower(key), "0123456789abcdef") != "") {
			t.Fatalf("%q is a token", key)
		}
	})
}
