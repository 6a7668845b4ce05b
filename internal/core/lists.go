package core

import (
	"iter"
	"slices"
)

// The parameter lists of a statement have a power of two as length. A separate text for each
// length would fill the drivers' caches of prepared statements.

// PowersOfTwo yields 1, 2, 4 and so on, up to most.
func PowersOfTwo(most int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for n := 1; n <= most && yield(n); n *= 2 {
		}
	}
}

// PowerOfTwo returns the least power of two that is not less than n.
func PowerOfTwo(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

// Pad returns list with its last element repeated until the length is a power of two. list
// must not be empty.
func Pad[T any](list []T) []T {
	return append(slices.Clone(list), slices.Repeat(list[len(list)-1:], PowerOfTwo(len(list))-len(list))...)
}

// Chunks splits list into pieces whose lengths are powers of two, at most most, the longest
// first. Use it for lists whose elements must differ.
func Chunks[T any](list []T, most int) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for rest := list; len(rest) > 0; {
			n := 1
			for 2*n <= min(len(rest), most) {
				n *= 2
			}
			if !yield(rest[:n:n]) {
				return
			}
			rest = rest[n:]
		}
	}
}
