package idempotency

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"
)

// FuzzCanonical checks that an accepted request has one canonical form and that different
// texts do not get the same form: U+FFFD is in the form only where it was in the request.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{`{"b":1,"a":[1,2]}`, `"\ud800"`, "\"\xff\"", `"\ud83d\ude00"`, `"\\ud800"`, `1e400`, `{"a":1,"a":2}`, `"\ufffd"`, "\"\ufffd\"", `[]`, `-0`, ` null `, `"\u2028<&>"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		form, err := Canonical(json.RawMessage(raw))
		if err != nil {
			return
		}
		if again, err := Canonical(json.RawMessage(form)); err != nil || !bytes.Equal(form, again) {
			t.Fatalf("%q: %q, and again %q, %v", raw, form, again, err)
		}
		const replacement = string(utf8.RuneError)
		if n, in := bytes.Count(form, []byte(replacement)), bytes.Count(raw, []byte(replacement)); n > in {
			t.Fatalf("%q is %q: %d characters were replaced", raw, form, n-in)
		}
		if !utf8.Valid(form) {
			t.Fatalf("%q is %q", raw, form)
		}
	})
}

// FuzzCanonicalText compares pairs of texts in a program's own values.
func FuzzCanonicalText(f *testing.F) {
	f.Add("a", "b", "ab", "")
	f.Add(`a","b`, "", "a", "b")
	f.Add("\xff", "", "\xfe", "")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		type request struct{ One, Two string }
		one, err1 := Canonical(request{a, b})
		two, err2 := Canonical(request{c, d})
		if err1 == nil && err2 == nil && bytes.Equal(one, two) && (a != c || b != d) {
			t.Fatalf("(%q, %q) and (%q, %q) are one request", a, b, c, d)
		}
	})
}
