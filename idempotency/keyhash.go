package idempotency

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/idempotency/internal/once"
)

const minKeySecret = 32

// hashedKey stands before a key that a KeyHasher has hashed, hashedTag is the size of its tag.
const (
	hashedKey = "hmac:"
	hashedTag = 16
)

// KeyHasher keeps keys, fingerprints and what Similar compares as keyed hashes only: see
// Options.HashKeys. It is safe for concurrent use.
type KeyHasher struct{ secret []byte }

// NewKeyHasher returns the hasher of a secret of at least 32 random bytes, which it copies.
//
// Errors: [holdfast.ErrInvalid].
func NewKeyHasher(secret []byte) (*KeyHasher, error) {
	if len(secret) < minKeySecret {
		return nil, once.Invalid("secret", fmt.Sprintf("has %d bytes, at least %d are needed", len(secret), minKeySecret))
	}
	return &KeyHasher{append([]byte(nil), secret...)}, nil
}

// String tells nothing of the secret.
func (*KeyHasher) String() string { return "KeyHasher" }

// GoString is String.
func (h *KeyHasher) GoString() string { return h.String() }

// Key returns the text that is kept for a key: 69 characters, the HMAC-SHA-256 of the key and a tag
// that shows that this secret made it. A text that Key has returned stays as it is, so operations can
// be named by the key that operators see. A nil hasher returns the key.
func (h *KeyHasher) Key(key string) string {
	if h == nil || h.made(key) {
		return key
	}
	sum := h.sum("key", []byte(key))
	return hashedKey + base64.RawURLEncoding.EncodeToString(append(sum, h.sum("tag", sum)[:hashedTag]...))
}

// made reports whether Key has returned key.
func (h *KeyHasher) made(key string) bool {
	text, is := strings.CutPrefix(key, hashedKey)
	if !is || len(text) != base64.RawURLEncoding.EncodedLen(sha256.Size+hashedTag) { // the decoder ignores line breaks
		return false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	return err == nil && len(b) == sha256.Size+hashedTag && hmac.Equal(h.sum("tag", b[:sha256.Size])[:hashedTag], b[sha256.Size:])
}

// sum returns the HMAC of b for a use.
func (h *KeyHasher) sum(use string, b []byte) []byte {
	m := hmac.New(sha256.New, h.secret)
	m.Write([]byte("holdfast " + use + " 1\x00"))
	m.Write(b)
	return m.Sum(nil)
}

// fingerprints replaces the hashes of a request by keyed ones.
func (h *KeyHasher) fingerprints(p *fingerprints) {
	if h == nil {
		return
	}
	if p.own != nil {
		p.own = h.sum("fingerprint", p.own)
	}
	for version, b := range p.earlier {
		p.earlier[version] = h.sum("fingerprint", b)
	}
}

// similar returns keyed hashes of what makes two operations similar.
func (h *KeyHasher) similar(by []string) []string {
	if h == nil {
		return by
	}
	hashed := make([]string, len(by))
	for i, part := range by {
		hashed[i] = string(h.sum("similar", []byte(part)))
	}
	return hashed
}
