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
		"", "short", "fifteen bytes..", strings.Repeat("x", 100), strings.Repeat("ab", 20), "passwordpassword", "changeme-changeme-ch",
		"12345678901234567890", "aaaabbbbccccddddeeeeffffgggg",
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
