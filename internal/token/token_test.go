package token_test

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/token"
)

// TestChosen refuses tokens that people choose.
func TestChosen(t *testing.T) {
	t.Parallel()
	for _, chosen := range []string{
		"", "short", "fifteen bytes..", strings.Repeat("x", 100), strings.Repeat("ab", 20), "passwordpassword", "Password1Password1", "changeme-changeme-ch",
		"12345678901234567890", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "zyxwvutsrqponmlk", "qwertyuiopasdfgh", "qwertyuiop1234567890",
		"1q2w3e4r5t6y7u8i", "1a2b3c4d5e6f7g8h", "password12345678", "aaaabbbbccccddddeeeeffffgggghhhh",
	} {
		if token.Problem(chosen) == "" {
			t.Errorf("%q is taken", chosen)
		}
	}
}

// TestRandom takes random tokens in every usual form, and sentences, which it does not know.
func TestRandom(t *testing.T) {
	t.Parallel()
	for range 100 {
		b := make([]byte, 16)
		_, _ = rand.Read(b)
		for _, random := range []string{rand.Text(), hex.EncodeToString(b), base64.RawURLEncoding.EncodeToString(b), string(b)} {
			if problem := token.Problem(random); problem != "" {
				t.Errorf("%q %s", random, problem)
			}
		}
	}
	if problem := token.Problem("correct horse battery staple"); problem != "" {
		t.Error(problem)
	}
}
