package idemclient

import "testing"

// FuzzRetryAfter checks that a pause is never negative.
func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{``, `0`, `120`, `-1`, `99999999999999999999`, `Wed, 21 Oct 2015 07:28:00 GMT`, "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if pause, is := parseRetryAfter(value); pause < 0 || pause > 0 && !is {
			t.Fatalf("%q is a pause of %v, %v", value, pause, is)
		}
	})
}
