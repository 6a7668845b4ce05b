// Package holdfastcrypt encrypts what Holdfast stores of an operation: results and rejections,
// requests of staged operations, results of their steps, and bodies of provider events.
//
//	codec, former, err := holdfastcrypt.Codecs(
//		holdfastcrypt.Key{ID: "2026-07", Secret: newest},
//		holdfastcrypt.Key{ID: "2025-07", Secret: older})
//	store, err := idempotency.New(ctx, db, idempotency.Options{Codec: codec, FormerCodecs: former})
//
// It is AES-256-GCM with random nonces. The associated data is the hash of the value's place
// (namespace, owner, operation, key, and what the value is), so that a value that was changed, or
// copied to another row, is refused with [ErrTampered] and never replayed. Each place has a key of
// its own, derived from the secret by HKDF-SHA-256: the bound of 2^32 values per AES key holds for
// a place, and not for all records of a secret.
//
// # Rotation
//
// New values get the newest key; the others only read. The id of the key stands in clear in
// the table, behind the form: "json+aes256gcm:2026-07". While two versions of a program run, both
// need both keys: first deploy the new key among the older ones, then as the newest. When no value
// of an old key is left, it may go. A value whose key is missing is an
// *idempotency.MissingCodecError that names the key, and is not executed again.
//
// What Holdfast stores in clear is in docs/howto/privacy.md.
package holdfastcrypt

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
)

// Prefix stands before the id of the key in the name of a codec.
const Prefix = "aes256gcm:"

// SecretSize is the size of Key.Secret, in bytes, and MaxID the maximum of Key.ID.
const (
	SecretSize = 32
	MaxID      = 32
)

// Overhead is by how many bytes a stored value is longer than the value.
const Overhead = 12 + 16

// ErrTampered means that a stored value is not what was stored at its place: it was changed, it was
// copied from another place, or it was stored with another secret under the same id. A
// *TamperedError says which key was used.
var ErrTampered error = tampered{}

type tampered struct{}

func (tampered) Error() string {
	return "holdfastcrypt: the stored value is not the one that was stored here"
}

// HoldfastCode returns the code of [holdfast.Code].
func (tampered) HoldfastCode() string { return "value-tampered" }

// TamperedError says with which key a value was not to be decrypted. errors.Is(err, ErrTampered) holds.
type TamperedError struct{ KeyID string }

func (e *TamperedError) Error() string {
	return fmt.Sprintf("%v (key %q): it was changed, copied from another row, or stored with another secret under that id", ErrTampered, e.KeyID)
}

// Is reports whether target is ErrTampered.
func (e *TamperedError) Is(target error) bool { return target == ErrTampered }

// HoldfastCode returns the code of [holdfast.Code].
func (*TamperedError) HoldfastCode() string { return "value-tampered" }

// Key is a secret and its id.
type Key struct {
	// ID names the secret in the tables: 1 to 32 letters, digits and any of "-_.:". Another secret
	// needs another ID.
	ID string
	// Secret is 32 random bytes, from a key management service or a file. It is copied.
	Secret []byte
}

// String returns the id, so that a secret is not logged by accident.
func (k Key) String() string { return "key " + k.ID }

// GoString is String.
func (k Key) GoString() string { return k.String() }

// Codecs returns the codec that encrypts with the newest key, and those that decrypt with the older
// ones, for Options.Codec and Options.FormerCodecs.
//
// Errors: [holdfast.ErrInvalid] for a secret that is not 32 bytes or is all zero, for two keys of one
// ID, and for an ID of more than 32 bytes. idempotency.New checks the characters of the IDs.
func Codecs(newest Key, older ...Key) (idempotency.Codec, []idempotency.Codec, error) {
	var codecs []idempotency.Codec
	seen := map[string]bool{}
	for _, k := range append([]Key{newest}, older...) {
		switch {
		case k.ID == "" || len(k.ID) > MaxID:
			return nil, nil, invalid("Key.ID", fmt.Sprintf("%.40q is not 1 to %d bytes", k.ID, MaxID))
		case seen[k.ID]:
			return nil, nil, invalid("Key.ID", fmt.Sprintf("%q is given twice", k.ID))
		case len(k.Secret) != SecretSize:
			return nil, nil, invalid("Key.Secret", fmt.Sprintf("of %q has %d bytes, not %d", k.ID, len(k.Secret), SecretSize))
		case [SecretSize]byte(k.Secret) == [SecretSize]byte{}:
			return nil, nil, invalid("Key.Secret", fmt.Sprintf("of %q is all zero", k.ID))
		}
		seen[k.ID] = true
		codecs = append(codecs, &codec{id: k.ID, secret: [SecretSize]byte(k.Secret)})
	}
	return codecs[0], codecs[1:], nil
}

// codec is one key. It derives what it needs for each call, so it is safe for concurrent use.
type codec struct {
	id     string
	secret [SecretSize]byte
}

func (c *codec) Name() string { return Prefix + c.id }

// String returns the name, so that a secret is not logged by accident.
func (c *codec) String() string { return c.Name() }

// GoString is String.
func (c *codec) GoString() string { return c.Name() }

func (c *codec) Encode(plain, place []byte) ([]byte, error) {
	aead, err := c.at(place)
	if err != nil {
		return nil, err
	}
	return aead.Seal(nil, nil, plain, place), nil //nolint:gosec // the nonce is random: NewGCMWithRandomNonce takes none
}

func (c *codec) Decode(stored, place []byte) ([]byte, error) {
	aead, err := c.at(place)
	if err != nil {
		return nil, err
	}
	plain, err := aead.Open(nil, nil, stored, place)
	if err != nil {
		return nil, &TamperedError{KeyID: c.id} // the cause says nothing more
	}
	return plain, nil
}

// at returns the AEAD of a place. Its Seal puts a random nonce before the value.
func (c *codec) at(place []byte) (cipher.AEAD, error) {
	key, err := hkdf.Expand(sha256.New, c.secret[:], "holdfast aes-256-gcm 1"+string(place), SecretSize)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

func invalid(field, problem string) error {
	return &holdfast.InputError{Field: field, Problem: problem}
}
