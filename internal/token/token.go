// Package token refuses tokens that are not random: those that a person chose.
package token

import "fmt"

const (
	// Min is the shortest token, in bytes.
	Min = 16

	minDifferent = 8 // 16 random hexadecimal digits have 10
)

// Problem says what is wrong with a token; "" if nothing is. It finds tokens that are too short, have few
// different bytes, or repeat themselves. It has no list of words or of leaked passwords: a sentence passes.
func Problem(token string) string {
	switch n := different(token); {
	case len(token) < Min:
		return fmt.Sprintf("has %d bytes, at least %d are required", len(token), Min)
	case n < minDifferent:
		return fmt.Sprintf("is not random: it has %d different bytes", n)
	case repeats(token):
		return "is not random: it repeats itself"
	}
	return ""
}

func different(text string) int {
	seen := map[byte]bool{}
	for i := range len(text) {
		seen[text[i]] = true
	}
	return len(seen)
}

// repeats reports whether text is one of at most half its length, again and again.
func repeats(text string) bool {
	for n := 1; n <= len(text)/2; n++ {
		if text[n:] == text[:len(text)-n] {
			return true
		}
	}
	return false
}
