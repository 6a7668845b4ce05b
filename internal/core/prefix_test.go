package core

import (
	"strings"
	"testing"
)

// TestBehind compares the bounds of a prefix with a search among names.
func TestBehind(t *testing.T) {
	t.Parallel()
	all := []string{"", "\x00", "a", "a\xfd\xff", "a\xfe", "a\xfe\xff", "a\xff", "a\xff\xff", "a\xff\xff\xff", "b", "\xc3\xa9", "\xfd", "\xfe", "\xfe\xff", "\xff", "\xff\xff", "\xff\xffz"}
	for _, prefix := range all {
		behind := Behind([]byte(prefix))
		for _, name := range all {
			in := name >= prefix && (behind == nil || name < string(behind))
			if in != strings.HasPrefix(name, prefix) {
				t.Errorf("name %q, prefix %q, behind it %q: %v", name, prefix, behind, in)
			}
		}
	}
}
