package fairlocks

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/sqllock"
)

// stay is one grant of a queued lock as its holder saw it: from the return of Acquire to the
// last moment at which the holder certainly trusted the lease.
type stay struct {
	units, capacity int
	token           int64
	asked, from, to time.Time
}

func (st *stay) String() string {
	return fmt.Sprintf("%d of %d units with token %d, asked at %s, had from %s to %s",
		st.units, st.capacity, st.token, st.asked.Format("05.000000"), st.from.Format("05.000000"), st.to.Format("05.000000"))
}

// stays are the grants on one key.
type stays struct {
	mu   sync.Mutex
	list []stay
}

// begin records a grant of units; asked is the time of the call.
func (s *stays) begin(lease *sqllock.Lease, units, capacity int, asked time.Time) *stay {
	now := time.Now()
	return &stay{units, capacity, lease.Token(), asked, now, now}
}

// alive records that the lease is trusted now, if it is.
func (st *stay) alive(lease *sqllock.Lease) bool {
	now := time.Now() // before the check
	if lease.Context().Err() != nil {
		return false
	}
	st.to = now
	return true
}

func (s *stays) end(st *stay) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, *st)
}

// found runs judge while other goroutines continue.
func (s *stays) found() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.judge()
}

// judge finds moments with too many units in use, tokens that do not increase, and tickets that
// were overtaken. It implements the plain definition of each, in quadratic time.
func (s *stays) judge() (problems []string) {
	list := slices.Clone(s.list)
	slices.SortFunc(list, func(a, b stay) int { return a.from.Compare(b.from) })
	for i, a := range list {
		units := a.units
		for _, b := range list[:i] {
			if !b.to.Before(a.from) {
				units += b.units
			}
		}
		if units > a.capacity {
			problems = append(problems, fmt.Sprintf("%d units are out as this begins: %v", units, &a))
		}
		for _, b := range list[:i] { // grants that began before
			switch {
			case a.token == b.token:
				problems = append(problems, fmt.Sprintf("one token twice: %v; %v", &b, &a))
			case a.token < b.token && b.from.Before(a.asked):
				problems = append(problems, fmt.Sprintf("the token goes back: %v; %v", &b, &a))
			case a.token < b.token && a.units+b.units > a.capacity:
				problems = append(problems, fmt.Sprintf("overtaken: %v; %v", &b, &a))
			}
		}
	}
	return problems
}

// most returns the largest number of simultaneous grants.
func (s *stays) most() (most int) {
	for _, a := range s.list {
		n := 0
		for _, b := range s.list {
			if !b.from.After(a.from) && !b.to.Before(a.from) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}
