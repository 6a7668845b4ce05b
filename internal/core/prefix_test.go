package core

import (
	"bytes"
	"testing"
)

// TestBehind compares the bounds of a prefix with a search among names.
func TestBehind(t *testing.T) {
	t.Parallel()
	all := []string{"", "\x00", "a", "a\xfd\xff", "a\xfe", "a\xfe\xff", "a\xff", "a\xff\xff", "a\xff\xff\xff", "b", "\xc3\xa9", "\xfd", "\xfe", "\xfe\xff", "\xff", "\xff\xff", "\xff\xffz"}
	for _, prefix := range all {
		behind := Behind([]byte(prefix))
		for _, name := range all {
			in := bytes.Compare([]byte(name), []byte(prefix)) >= 0 && (behind == nil || bytes.Compare([]byte(name), behind) < 0)
			if in != bytes.HasPrefix([]byte(name), []byte(prefix)) {
				t.Errorf("name %q, prefix %q, behind it %q: %v", name, prefix, behind, in)
			}
		}
	}
}
