package sqllock

import "fmt"

// MaxKey is the longest key, in bytes.
const MaxKey = 1024

// kind is the first byte of a row's name: locks of different kinds share the
// table, and a key of one is no key of another.
type kind byte

const (
	kindLease kind = 'l'
	kindRow   kind = 'r'
)

// nameOf is the name of a key's row: its exact bytes behind those of the kind.
func nameOf(k kind, key string) ([]byte, error) {
	switch {
	case key == "":
		return nil, invalid("key", "is empty: name what is to be locked")
	case len(key) > MaxKey:
		return nil, invalid("key", fmt.Sprintf("%.20q… has %d bytes, at most %d: use a hash of it", key, len(key), MaxKey))
	}
	return append([]byte{byte(k)}, key...), nil
}
