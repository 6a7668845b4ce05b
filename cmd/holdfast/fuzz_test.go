package main

import (
	"strings"
	"testing"
)

// FuzzTableSpec checks that --table splits its value at colons and commas without changing the
// parts, and that it refuses every other value.
func FuzzTableSpec(f *testing.F) {
	for _, s := range []string{tableForm, "sessions:id:expires_at:ms", "a:b,c:d:utc:720h", ":::us", "a:b:c:s:", `t"; DROP TABLE x; --:id:e:us`, "a:b:c:d:e:f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		spec, err := tableSpec(text)
		if err != nil {
			return
		}
		if got := spec.Table + ":" + strings.Join(spec.Key, ",") + ":" + spec.Expires + ":"; !strings.HasPrefix(text, got) || spec.Unit == 0 || len(spec.Key) == 0 {
			t.Fatalf("%q: %+v", text, spec)
		}
	})
}
