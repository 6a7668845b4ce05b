// Package token refuses tokens that are not random: those that a person chose.
package token

import (
	"fmt"
	"strings"
)

const (
	// Min is the shortest token, in bytes.
	Min = 16

	minDifferent = 8 // 16 random hexadecimal digits have 10
	minFree      = 8 // bytes that do not follow from those before
)

// rows are bytes in an order that people type: a byte beside the one before it says nothing new.
var rows = []string{"abcdefghijklmnopqrstuvwxyz", "01234567890", "qwertyuiop", "asdfghjkl", "zxcvbnm"}

// Problem says what is wrong with a token; "" if nothing is. It finds tokens that are too short, that repeat
// themselves, and that go along the alphabet, the digits or a keyboard. It has no list of words or of leaked
// passwords: a sentence passes.
func Problem(token string) string {
	text := lower(token)
	switch n := different(token); {
	case len(token) < Min:
		return fmt.Sprintf("has %d bytes, at least %d are required", len(token), Min)
	case n < minDifferent:
		return fmt.Sprintf("is not random: it has %d different bytes", n)
	case repeats(text):
		return "is not random: it repeats itself"
	case free(text, 1) < minFree || free(text, 2) < minFree: // 2: as in 1a2b3c
		return "is not random: most of its bytes follow from those before"
	}
	return ""
}

// lower leaves bytes alone that are no ASCII letters.
func lower(text string) string {
	b := []byte(text)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
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

// free counts the bytes that do not follow from the one that is distance before them.
func free(text string, distance int) int {
	n := distance
	for i := distance; i < len(text); i++ {
		if !follows(text[i-distance], text[i]) {
			n++
		}
	}
	return n
}

func follows(a, b byte) bool {
	if a == b {
		return true
	}
	up, down := string([]byte{a, b}), string([]byte{b, a})
	for _, row := range rows {
		if strings.Contains(row, up) || strings.Contains(row, down) {
			return true
		}
	}
	return false
}
