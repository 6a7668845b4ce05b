package once

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast"
)

// Hash identifies a key within its scope.
type Hash = [sha256.Size]byte

// HashKey hashes the parts. It writes the length of each part before it, so that
// two different lists of parts never hash the same bytes.
func HashKey(parts ...string) (sum Hash) {
	h := sha256.New()
	h.Write([]byte("holdfast record 1"))
	for _, p := range parts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	h.Sum(sum[:0])
	return sum
}

// RandomID returns 16 random bytes.
func RandomID() []byte {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails, as documented
	return b
}

// MaxName bounds names, in bytes.
const MaxName = 128

// Invalid returns the error for a wrong argument.
func Invalid(field, problem string) error {
	return &holdfast.InputError{Field: field, Problem: problem}
}

// CheckName refuses a name that a column would not store unchanged.
func CheckName(field, name string, emptyOK bool) error {
	switch {
	case name == "" && !emptyOK:
		return Invalid(field, "is missing")
	case len(name) > MaxName:
		return Invalid(field, fmt.Sprintf("has %d bytes, at most %d are allowed", len(name), MaxName))
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return Invalid(field, fmt.Sprintf("%.40q is not UTF-8 without NUL bytes", name))
	}
	return nil
}

// Cut shortens text to fit a column of n bytes.
func Cut(text string, n int) string {
	if len(text) > n {
		text = text[:n]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, ""), "\x00", "")
}

// Nullable turns nil bytes into a NULL for every driver.
func Nullable(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}
