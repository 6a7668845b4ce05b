package once

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
)

// Hash identifies a key within its scope.
type Hash = [sha256.Size]byte

// ID identifies the row of an operation. The owner leads every key, so it leads the arguments.
type ID struct {
	Owner string
	Hash  Hash
}

// Args returns the arguments of a statement: the owner, the hash and more.
func (id ID) Args(more ...any) []any { return append([]any{id.Owner, id.Hash[:]}, more...) }

// Into returns the target to scan a hash into.
func Into(h *Hash) any { return &hashTarget{h} }

type hashTarget struct{ to *Hash }

// Scan implements sql.Scanner.
func (t *hashTarget) Scan(from any) error {
	b, ok := from.([]byte)
	if !ok || len(b) != len(t.to) {
		return fmt.Errorf("a key's hash is %T of %d bytes", from, len(b))
	}
	copy(t.to[:], b)
	return nil
}

// Bytes returns the id in one piece.
func (id ID) Bytes() []byte { return append(id.Hash[:len(id.Hash):len(id.Hash)], id.Owner...) }

// ParseID reads what Bytes returned.
func ParseID(b []byte) (id ID, ok bool) {
	n := copy(id.Hash[:], b)
	id.Owner = string(b[n:])
	return id, n == len(id.Hash) && core.CheckName("id", id.Owner, true) == nil
}

// HashKey hashes the parts. It writes the length of each part before it, so that
// two different lists of parts never hash the same bytes.
func HashKey(parts ...string) Hash { return hashParts("holdfast record 1", nil, parts) }

// hashParts hashes what is hashed, bytes of a fixed length, and the parts.
func hashParts(what string, fixed []byte, parts []string) (sum Hash) {
	h := sha256.New()
	h.Write([]byte(what))
	h.Write(fixed)
	for _, p := range parts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	h.Sum(sum[:0])
	return sum
}

// HashSimilar hashes what makes operations similar, as HashKey hashes keys.
func HashSimilar(namespace, owner, operation string, by []string) Hash {
	return hashParts("holdfast similar 1", nil, append([]string{namespace, owner, operation}, by...))
}

// RandomID returns 16 random bytes.
func RandomID() []byte {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails, as documented
	return b
}

// Invalid returns the error for a wrong argument.
func Invalid(field, problem string) error {
	return &holdfast.InputError{Field: field, Problem: problem}
}

// maxVoidReason bounds the reason of a void, in bytes.
const maxVoidReason = 500

// CheckReason checks the reason of a void.
func CheckReason(reason string) error {
	if reason == "" || Cut(reason, maxVoidReason) != reason {
		return Invalid("reason", fmt.Sprintf("is not 1 to %d bytes of UTF-8 without NUL", maxVoidReason))
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

// Text is Cut, with a NULL for an empty text.
func Text(text string, n int) any {
	if text = Cut(text, n); text != "" {
		return text
	}
	return nil
}

// Nullable turns nil bytes into a NULL for every driver.
func Nullable(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}
