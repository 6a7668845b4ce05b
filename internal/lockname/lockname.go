// Package lockname names the rows of the lock table. Locks of several kinds share
// that table: the first byte of a row's name is the kind, so that a key of one kind
// is never a key of another. Before the name comes the owner of the key.
package lockname

import (
	"cmp"
	"fmt"
	"iter"
	"strings"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/errcode"
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

// Row returns the column of the name of a key, empty for the key "", which is before all others.
func (k Kind) Row(key string) []byte {
	if key == "" {
		return []byte{}
	}
	return append([]byte{byte(k)}, key...)
}

// Name identifies the row of a key.
type Name struct {
	Owner string
	row   string // the kind, then the exact bytes of the key
}

// Of returns the name of an owner's key. It refuses a key that is empty or longer than [MaxKey],
// and an owner that is refused.
func Of(k Kind, owner core.Owner, key string) (Name, error) {
	switch {
	case key == "":
		return Name{}, invalid("is empty: name what is to be locked")
	case len(key) > MaxKey:
		return Name{}, invalid(fmt.Sprintf("%.20q… has %d bytes, at most %d: use a hash of it", key, len(key), MaxKey))
	}
	return Name{owner.ID, string(k) + key}, owner.Err
}

// Parse returns the name of a row. It returns false for a row that is not a lock's.
func Parse(owner string, row []byte) (n Name, ok bool) { return Name{owner, string(row)}, len(row) > 1 }

// Kind returns the kind of the lock.
func (n Name) Kind() Kind { return Kind(n.row[0]) }

// Key returns the key, which is empty for the zero Name.
func (n Name) Key() string {
	if n.row == "" {
		return ""
	}
	return n.row[1:]
}

// Compare orders names by owner and row.
func (n Name) Compare(o Name) int {
	return cmp.Or(strings.Compare(n.Owner, o.Owner), strings.Compare(n.row, o.row))
}

// Row returns the name's column.
func (n Name) Row() []byte { return []byte(n.row) }

// AppendRow appends the name's column to b.
func (n Name) AppendRow(b []byte) []byte { return append(b, n.row...) }

// Args returns the arguments of a statement: the owner, the row and more.
func (n Name) Args(more ...any) []any { return append([]any{n.Owner, n.Row()}, more...) }

// ByOwner splits a list into parts with one owner each. Each statement is for one owner.
func ByOwner[T any](list []T, name func(T) Name) iter.Seq2[string, []T] {
	return func(yield func(string, []T) bool) {
		parts := map[string][]T{}
		var owners []string
		for _, v := range list {
			owner := name(v).Owner
			if parts[owner] == nil {
				owners = append(owners, owner)
			}
			parts[owner] = append(parts[owner], v)
		}
		for _, owner := range owners {
			if !yield(owner, parts[owner]) {
				return
			}
		}
	}
}

func invalid(problem string) error {
	return errcode.Invalid("key", problem)
}
