package sqllock

import (
	"hash/maphash"
	"sync"
)

// maxSeen bounds the memory of a set, which is emptied when it is full.
const maxSeen = 100_000

// seen remembers names by their hash. It may be wrong about any of them.
type seen struct {
	mu   sync.Mutex
	seed maphash.Seed
	set  map[uint64]struct{}
}

func newSeen() *seen { return &seen{seed: maphash.MakeSeed(), set: map[uint64]struct{}{}} }

func (s *seen) has(name []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.set[maphash.Bytes(s.seed, name)]
	return ok
}

func (s *seen) add(name []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.set) >= maxSeen {
		clear(s.set)
	}
	s.set[maphash.Bytes(s.seed, name)] = struct{}{}
}

func (s *seen) remove(name []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.set, maphash.Bytes(s.seed, name))
}
