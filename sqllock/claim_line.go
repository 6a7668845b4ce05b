package sqllock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

const (
	// joinBatch is how many claims join a line in one transaction, which keeps
	// the key's anchor locked.
	joinBatch = 64
	// firstBatch is how many claims of a line are looked at, at most.
	firstBatch = 64
)

// lines are those of one process. For each there is at most one goroutine that
// writes, on one connection, so that a thousand calls for one key do not take
// the pool from everybody else while they wait for its anchor.
type lines struct {
	m       *manager
	of      map[string]*line
	looks   *agenda[*line]
	running sync.WaitGroup
}

func newLines(m *manager) *lines {
	s := &lines{m: m, of: map[string]*line{}}
	s.looks = newAgenda(m.ctx, pollSlack, s.look)
	return s
}

// enlist puts a call on the list of those that want a place; m.mu is held.
func (s *lines) enlist(c *claim) {
	q := s.of[string(c.name)]
	if q == nil {
		q = &line{name: c.name}
		s.of[string(c.name)] = q
	}
	c.line = q
	q.joining = append(q.joining, c)
	s.serve(q)
}

// serve has what there is to write for a line written; m.mu is held.
func (s *lines) serve(q *line) {
	if q.serving || s.m.closed {
		return
	}
	q.serving = true
	s.running.Go(func() { s.write(q) })
}

// drop forgets a line without use; m.mu is held.
func (s *lines) drop(q *line) {
	if len(q.joining)+len(q.waiting) == 0 && !q.serving {
		delete(s.of, string(q.name))
		s.looks.drop(q)
	}
}

// write does what there is to do, grants first.
func (s *lines) write(q *line) {
	pause := core.NewBackoff()
	for {
		s.m.mu.Lock()
		ready, dead := q.ready, q.dead
		q.ready, q.dead = nil, false
		var joining []*claim
		if len(ready) == 0 && !dead {
			n := min(len(q.joining), joinBatch)
			joining = append(joining, q.joining[:n]...)
			q.joining = append([]*claim(nil), q.joining[n:]...)
		}
		if len(ready)+len(joining) == 0 && !dead {
			q.serving = false
			s.drop(q)
			s.m.mu.Unlock()
			return
		}
		s.m.mu.Unlock()

		ctx, cancel := context.WithTimeout(s.m.ctx, holdfast.CleanupTimeout)
		switch {
		case len(ready) > 0:
			s.confirm(ctx, q, ready)
		case dead:
			s.clear(ctx, q)
		default:
			if again := s.join(ctx, q, joining); again {
				_ = pause.Sleep(ctx)
			} else {
				pause = core.NewBackoff()
			}
		}
		cancel()
	}
}

// join has claims join their line. It says whether that is to be tried again,
// after the engine undid it.
func (s *lines) join(ctx context.Context, q *line, batch []*claim) (again bool) {
	m := s.m
	entries := make([]entry, len(batch))
	for i, c := range batch {
		entries[i] = entry{attempt: attempt{name: q.name, owner: newOwner(), ttl: c.ttl}, units: c.units, capacity: c.capacity, now: c.now}
	}
	sent := time.Now()
	err := m.store.enter(ctx, q.name, entries)
	class := m.store.dialect.Classify(err)
	// Nothing was done, and our own bound on it is not the caller's.
	again = (class == dialect.Retry || class == dialect.Busy || err != nil && ctx.Err() != nil) && !errors.Is(err, holdfast.ErrUnknown)
	var v view
	why := err // of those that were refused
	if err == nil && slices.ContainsFunc(entries, func(e entry) bool { return e.state == refused && !e.now }) {
		v, why = m.store.lookClaims(ctx, q.name)
	}
	var unwanted []attempt
	m.mu.Lock()
	var rejoin []*claim
	for i, c := range batch {
		e := entries[i]
		switch c.tries++; {
		case e.state == refused && (c.gone || m.closed):
		case again && c.now && c.tries >= holdfast.DefaultAttempts:
			c.err = &holdfast.RetryError{Attempts: c.tries, Err: err}
		case again:
			rejoin = append(rejoin, c)
			continue
		case e.state == refused && err == nil && c.now:
			c.err = errRefused
		case e.state == refused && why != nil:
			c.err = why
		case e.state == refused && v.living > 0 && v.capacity != c.capacity:
			c.err = &CapacityError{Key: c.key, Permits: c.capacity, Others: v.capacity}
		case e.state == refused: // the others are dead, or gone by now
			q.dead = q.dead || v.all > 0
			rejoin = append(rejoin, c)
			continue
		case err != nil: // a commit in doubt
			c.err = err
			m.forsake(e.attempt)
		case c.gone || m.closed:
			unwanted = append(unwanted, e.attempt)
		default:
			s.place(c, e, sent)
		}
		signal(c.event)
	}
	q.joining = append(rejoin, q.joining...)
	if len(q.waiting) > 0 {
		s.lookIn(q, minPoll)
	}
	m.mu.Unlock()
	for _, a := range unwanted {
		if _, err := m.store.leave(ctx, a); err != nil {
			m.forsake(a)
		}
	}
	return again || len(rejoin) > 0
}

// place makes the lease of a claim that is in the table; m.mu is held. Nobody
// trusts a place, so its time runs out in the table only, where it is looked at.
func (s *lines) place(c *claim, e entry, sent time.Time) {
	m := s.m
	l := &Lease{
		m: m, attempt: e.attempt, margin: c.margin, once: c.once, live: true, until: sent.Add(c.ttl - c.margin),
		term: Term{kind: c.kind, key: c.key, token: e.token, store: m.store.id}, claim: c, outer: holding(c.values),
	}
	l.ctx, l.cancel = context.WithCancelCause(context.WithValue(context.WithoutCancel(c.values), holdingKey{}, l))
	m.held[l] = struct{}{}
	l.timer = time.AfterFunc(time.Hour, l.expire)
	l.timer.Stop()
	c.lease = l
	m.renewal(c.ttl).set(l, sent.Add(c.ttl/renewPart))
	if e.state == granted {
		s.grant(c)
		return
	}
	c.line.waiting = append(c.line.waiting, c)
}

// grant gives a claim to its call; m.mu is held.
func (s *lines) grant(c *claim) {
	c.granted = true
	s.m.granted(c.lease, time.Now())
	c.line.waiting = without(c.line.waiting, c)
	c.lease.timer.Reset(time.Until(c.lease.until))
	if c.once {
		s.m.renewal(c.ttl).drop(c.lease)
	}
	signal(c.event)
}

// confirm writes down that claims are granted.
func (s *lines) confirm(ctx context.Context, q *line, ready []*claim) {
	for _, c := range ready {
		s.m.mu.Lock()
		l := c.lease
		waits := l != nil && l.live && !c.granted
		s.m.mu.Unlock()
		if !waits {
			continue
		}
		sent := time.Now()
		ok, err := s.m.store.confirm(ctx, l.attempt)
		s.m.mu.Lock()
		if err == nil && ok && l.live {
			l.prolong(sent.Add(l.ttl))
			s.grant(c)
		}
		s.m.mu.Unlock()
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if len(q.waiting) > 0 { // the next of them may be granted too
		s.lookIn(q, minPoll)
	}
}

// clear clears claims away that have expired.
func (s *lines) clear(ctx context.Context, q *line) {
	n, err := s.m.store.clearDead(ctx, q.name)
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	switch {
	case len(q.waiting) == 0:
	case err == nil && n > 0:
		s.soon(q.name)
	default: // locked, as by a guarded transaction
		q.pause = min(2*q.pause, maxPoll)
		s.lookIn(q, q.pause)
	}
}

// close ends the waiting of all; m.mu is held.
func (s *lines) close() {
	for _, q := range s.of {
		for _, c := range append(q.joining, q.waiting...) {
			signal(c.event)
		}
	}
}

// wait waits until nothing is written any more, or ctx ends.
func (s *lines) wait(ctx context.Context) {
	done := make(chan struct{})
	go func() { s.running.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
}
