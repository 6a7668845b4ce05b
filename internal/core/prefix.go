package core

import "slices"

// Behind returns the first name, in the order of bytes, that sorts after all names with a prefix,
// or nil if none does. Package bytes would trim as characters: for bytes.TrimRight, each byte that
// is not UTF-8 is the same one.
func Behind(prefix []byte) []byte {
	for n := len(prefix); n > 0; n-- {
		if prefix[n-1] < 0xff {
			p := slices.Clone(prefix[:n])
			p[n-1]++
			return p
		}
	}
	return nil
}
