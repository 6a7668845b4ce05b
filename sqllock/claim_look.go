package sqllock

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// perClaim is how long a claim is before the next one at least: the farther off
// a claim's turn, the less often is looked.
const perClaim = time.Millisecond

// first are the claims of a line that may be granted together with the first of
// them. The others need not be looked at.
func (q *line) first() []*claim {
	units := 0
	for i, c := range q.waiting {
		if units += c.units; i > 0 && units > c.capacity || i == firstBatch {
			return q.waiting[:i]
		}
	}
	return q.waiting
}

// soon has a key's line looked at at once; m.mu is held.
func (s *lines) soon(name []byte) {
	q := s.of[string(name)]
	if q == nil || len(q.waiting) == 0 {
		return
	}
	q.hurry, q.pause = true, minPoll
	s.looks.set(q, time.Now())
}

// lookIn has a line looked at in a while; m.mu is held.
func (s *lines) lookIn(q *line, d time.Duration) {
	if q.hurry {
		d = 0
	}
	s.looks.set(q, time.Now().Add(jitter(d)))
}

// look looks at the claims that may be granted next, with one statement for
// many of them.
func (s *lines) look(ctx context.Context, due []*line) {
	ctx, cancel := context.WithTimeout(ctx, holdfast.CleanupTimeout)
	defer cancel()
	m := s.m
	m.mu.Lock()
	var batch []*Lease
	for _, q := range due {
		q.hurry = false
		for _, c := range q.first() {
			batch = append(batch, c.lease)
		}
	}
	m.mu.Unlock()
	for leases := range slices.Chunk(batch, pollBatch) {
		sent := time.Now()
		places, err := m.store.places(ctx, leases)
		m.mu.Lock()
		if err == nil {
			for _, l := range leases {
				s.see(l, places[l.owner], sent)
			}
		}
		m.mu.Unlock()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, q := range due {
		switch {
		case len(q.ready) > 0 || q.dead:
			s.serve(q)
		case len(q.waiting) > 0:
			s.lookIn(q, max(q.pause, min(maxPoll, time.Duration(q.ahead)*perClaim)))
			q.pause = min(max(2*q.pause, minPoll), maxPoll)
		}
	}
}

// see does what follows from a claim's place; m.mu is held.
func (s *lines) see(l *Lease, p standing, sent time.Time) {
	c := l.claim
	q, units, capacity := c.line, int64(c.units), int64(c.capacity)
	switch {
	case !l.live || c.granted:
	case p.left <= 0:
		s.m.lose(l, trace.CauseTaken, "its claim had expired, or was taken away, while it waited")
	case p.confirmed: // the answer was lost
		l.prolong(sent.Add(p.left))
		s.grant(c)
	case p.units+units <= capacity:
		if !slices.Contains(q.ready, c) {
			q.ready = append(q.ready, c)
		}
	case p.living+units <= capacity:
		q.dead = true
	}
	if len(q.waiting) > 0 && q.waiting[0] == c && q.ahead != p.ahead {
		q.ahead, q.pause = p.ahead, minPoll // the line moves
	}
}
