// Package knownrows remembers which rows of the lock table exist, so that the
// insert that makes a row is sent only once.
package knownrows

import (
	"hash/maphash"
	"sync"

	"github.com/holdfast-go/holdfast/internal/lockname"
)

// maxRows bounds the memory of a set. A full set is emptied.
const maxRows = 100_000

// Set is a set of row names, kept as hashes. It is a hint: a hash may collide, and
// another process may have deleted the row. It is safe for concurrent use.
type Set struct {
	mu   sync.Mutex
	seed maphash.Seed
	rows map[uint64]struct{}
}

// New returns an empty set.
func New() *Set { return &Set{seed: maphash.MakeSeed(), rows: map[uint64]struct{}{}} }

// Has reports whether name was added.
func (s *Set) Has(name lockname.Name) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.rows[maphash.Comparable(s.seed, name)]
	return ok
}

// Add adds name.
func (s *Set) Add(name lockname.Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rows) >= maxRows {
		clear(s.rows)
	}
	s.rows[maphash.Comparable(s.seed, name)] = struct{}{}
}

// Remove removes name.
func (s *Set) Remove(name lockname.Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.rows, maphash.Comparable(s.seed, name))
}
