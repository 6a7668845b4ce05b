// Package lockname names the rows of the lock table. Locks of several kinds share
// that table: the first byte of a row's name is the kind, so that a key of one kind
// is never a key of another.
package lockname

import (
	"fmt"

	"github.com/holdfast-go/holdfast/internal/core"
)

// MaxKey is the maximum length of a key in bytes.
const MaxKey = 1024

// Kind is the kind of a lock, and the first byte of the name of its row.
type Kind byte

// The kinds.
const (
	Lease     Kind = 'l'
	Row       Kind = 'r'
	Fair      Kind = 'f'
	Semaphore Kind = 's'
)

// Of returns the name of a key's row: the kind, then the exact bytes of the key.
// It refuses a key that is empty or longer than [MaxKey].
func Of(k Kind, key string) ([]byte, error) {
	switch {
	case key == "":
		return nil, invalid("is empty: name what is to be locked")
	case len(key) > MaxKey:
		return nil, invalid(fmt.Sprintf("%.20q… has %d bytes, at most %d: use a hash of it", key, len(key), MaxKey))
	}
	return append([]byte{byte(k)}, key...), nil
}

func invalid(problem string) error {
	return &core.InputError{Field: "key", Problem: problem}
}
