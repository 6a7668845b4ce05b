package staged

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/idempotency/internal/once"
)

// KeyFormat is the form of the idempotency keys that a provider accepts. According to their
// manuals, Square accepts up to 45 characters, Adyen 64, PayPal 108 and Stripe 255, and Razorpay
// requires at least 10. Keys of the default format fit all of them.
type KeyFormat struct {
	// Length is the length of the key, 26 (130 bits) to 52. Default: 40, which every provider
	// named above accepts.
	Length int
	// UUID makes keys UUIDs (version 8, 36 characters) instead.
	UUID bool
}

const (
	minProviderKey     = 26
	defaultProviderKey = 40
	maxProviderKey     = 52
)

var keyEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

func (f KeyFormat) check() error {
	if f.Length < minProviderKey || f.Length > maxProviderKey {
		return once.Invalid("KeyFormat.Length", fmt.Sprintf("%d is not between %d (fewer could collide) and %d", f.Length, minProviderKey, maxProviderKey))
	}
	return nil
}

// derive makes a provider's key from the record's key, which stands for namespace, owner,
// operation and key, and from the step. It never uses a row's id or a token, so that a restored
// backup, or an empty database, gives the same key again.
func (f KeyFormat) derive(key once.Hash, step string) string {
	h := sha256.New()
	h.Write([]byte("holdfast provider key 1"))
	h.Write(key[:])
	h.Write([]byte(step)) // the only part of variable length, so the encoding is unambiguous
	sum := h.Sum(nil)
	if !f.UUID {
		return keyEncoding.EncodeToString(sum)[:f.Length]
	}
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	x := hex.EncodeToString(sum[:16])
	return strings.Join([]string{x[:8], x[8:12], x[12:16], x[16:20], x[20:]}, "-")
}
