package idemclient_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/idempotency/idemclient"
)

// TestParseKey checks that the quoted and the bare form are the same key, and that a header
// that could mean two keys or none is refused.
func TestParseKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []string
		key    string
		err    error
	}{
		{nil, "", idemclient.ErrKeyMissing},
		{[]string{`"8e03978e-40d5-43e8-bc93-6894a57f9324"`}, "8e03978e-40d5-43e8-bc93-6894a57f9324", nil},
		{[]string{`8e03978e-40d5-43e8-bc93-6894a57f9324`}, "8e03978e-40d5-43e8-bc93-6894a57f9324", nil},
		{[]string{" \t\"k\" "}, "k", nil},
		{[]string{" k\t"}, "k", nil},
		{[]string{`"a \"b\" \\ c, d; e"`}, `a "b" \ c, d; e`, nil},
		{[]string{`"k";a=1;b`}, "k", nil},
		{[]string{`A-17/1`}, "A-17/1", nil},
		{[]string{`ab+/==`}, "ab+/==", nil},
		{[]string{`42`}, "42", nil},
		{[]string{`"K"`}, "K", nil},
		{[]string{`" k "`}, " k ", nil},
		{[]string{``}, "", idemclient.ErrKeyMalformed},
		{[]string{`  `}, "", idemclient.ErrKeyMalformed},
		{[]string{`""`}, "", idemclient.ErrKeyMalformed},
		{[]string{`"k`}, "", idemclient.ErrKeyMalformed},
		{[]string{`k"`}, "", idemclient.ErrKeyMalformed},
		{[]string{`"k" x`}, "", idemclient.ErrKeyMalformed},
		{[]string{`"a\x"`}, "", idemclient.ErrKeyMalformed},
		{[]string{"\"caf\u00e9\""}, "", idemclient.ErrKeyMalformed},
		{[]string{"caf\u00e9"}, "", idemclient.ErrKeyMalformed},
		{[]string{"a\x7f"}, "", idemclient.ErrKeyMalformed},
		{[]string{"\"a\tb\""}, "", idemclient.ErrKeyMalformed},
		{[]string{`a b`}, "", idemclient.ErrKeyMalformed},
		// A proxy may join two fields with a comma, so neither part is used as the key.
		{[]string{`a,b`}, "", idemclient.ErrKeyMalformed},
		{[]string{`a, b`}, "", idemclient.ErrKeyMalformed},
		{[]string{`"a", "b"`}, "", idemclient.ErrKeyMalformed},
		{[]string{`a`, `a`}, "", idemclient.ErrKeyMalformed},
		{[]string{`"a"`, ``}, "", idemclient.ErrKeyMalformed},
	} {
		key, err := idemclient.ParseKey(http.Header{idemclient.HeaderKey: c.values})
		if key != c.key || !errors.Is(err, c.err) {
			t.Errorf("%q: got %q, %v, want %q, %v", c.values, key, err, c.key, c.err)
		}
	}
}

func TestFormatKey(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "caf\u00e9", "a\nb", "\x00"} {
		if v, err := idemclient.FormatKey(key); !errors.Is(err, idemclient.ErrKeyMalformed) {
			t.Errorf("%q: got %q, %v", key, v, err)
		}
	}
	if v, err := idemclient.FormatKey(`a "b"\`); v != `"a \"b\"\\"` || err != nil {
		t.Errorf("got %s, %v", v, err)
	}
}

// FuzzKey checks that every accepted key is printable ASCII, survives quoting, and is the same
// key in bare form where the bare form is accepted.
func FuzzKey(f *testing.F) {
	for _, s := range []string{`"k"`, `k`, ``, `""`, `"a\"b"`, `"a\\"`, `"k";p=1`, `a,b`, `"a", "b"`, "\u00e9", "\"\x00\"", `:YQ==:`, `?1`, `"k";a="`, "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		parse := func(v string) (string, error) { return idemclient.ParseKey(http.Header{idemclient.HeaderKey: {v}}) }
		key, err := parse(value)
		if err != nil {
			if !errors.Is(err, idemclient.ErrKeyMalformed) || key != "" {
				t.Fatalf("%q: %q, %v", value, key, err)
			}
			return
		}
		if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Fatalf("%q: the key %q was accepted", value, key)
		}
		quoted, err := idemclient.FormatKey(key)
		if err != nil {
			t.Fatalf("%q: %v", key, err)
		}
		if again, err := parse(quoted); again != key || err != nil {
			t.Fatalf("%q became %q (%v) when it was quoted", key, again, err)
		}
		if bare, err := parse(key); err == nil && key[0] != '"' && bare != strings.Trim(key, " \t") {
			t.Fatalf("%q is %q bare", key, bare)
		}
	})
}
