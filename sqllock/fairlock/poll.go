package fairlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/internal/trace"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

const (
	minPoll   = 2 * time.Millisecond
	maxPoll   = 50 * time.Millisecond
	pollSlack = minPoll
	pollBatch = 256
	// lasts is how long an error must last before it ends the calls that wait, and maxFailing the longest
	// pause between the statements that fail.
	lasts      = time.Second
	maxFailing = 500 * time.Millisecond
	// perTicket is the assumed minimum time that a ticket is held. A ticket with many tickets
	// before it is polled less often.
	perTicket = time.Millisecond
	// listenAfter is the number of polls after which a process listens for notifications.
	listenAfter = 1
)

// first returns the tickets that may be granted together with the first one. The others need no
// poll.
func (q *queue) first() []*ticket {
	units := 0
	for i, c := range q.waiting {
		if units += c.units; i > 0 && units > c.capacity || i == firstBatch {
			return q.waiting[:i]
		}
	}
	return q.waiting
}

// pollNow reads a key's queue at once; Mu is held.
func (s *tickets) pollNow(name lockname.Name) {
	q := s.queues[name]
	if q == nil || len(q.waiting) == 0 {
		return
	}
	q.hurry, q.pause = true, minPoll
	s.polls.Set(q, time.Now())
}

// pollIn reads a queue after d; Mu is held.
func (s *tickets) pollIn(q *queue, d time.Duration) {
	if s.rarely > 0 && q.polls > listenAfter {
		d = s.rarely
	}
	if q.hurry {
		d = 0
	}
	s.polls.Set(q, time.Now().Add(keeper.Jitter(d)))
}

// poll reads the tickets that may be granted next, with one statement for many of them.
func (s *tickets) poll(ctx context.Context, due []*queue) {
	ctx, cancel := context.WithTimeout(ctx, core.CleanupBound())
	defer cancel()
	s.k.Mu.Lock()
	var batch []*keeper.Lease
	for _, q := range due {
		q.hurry = false
		for _, c := range q.first() {
			batch = append(batch, c.lease)
		}
	}
	s.k.Mu.Unlock()
	for _, part := range lockname.ByOwner(batch, func(l *keeper.Lease) lockname.Name { return l.Attempt().Name }) {
		s.read(ctx, part)
	}
	ended := s.clearEnded(ctx, due)
	s.k.Mu.Lock()
	defer s.k.Mu.Unlock()
	for _, q := range due {
		switch {
		case ended[q] && len(q.waiting) > 0:
			s.pollNow(q.name)
		case len(q.ready) > 0 || q.expired:
			s.serve(q)
		case len(q.waiting) > 0:
			if q.polls++; q.polls > listenAfter {
				s.k.Notifier.Need()
			}
			if q.polls > listenAfter || s.k.Waker.Hears() {
				s.k.Waker.Await(q.holder)
			}
			s.pollIn(q, max(q.pause, min(maxPoll, time.Duration(q.ahead)*perTicket)))
			if q.failing.IsZero() {
				q.pause = min(max(2*q.pause, minPoll), maxPoll)
			}
		}
	}
}

// clearEnded deletes the first tickets whose process has ended, unless their rows are locked.
func (s *tickets) clearEnded(ctx context.Context, due []*queue) map[*queue]bool {
	var heads map[*queue]keeper.AttemptID
	s.k.Mu.Lock()
	for _, q := range due {
		if len(q.waiting) > 0 && q.holder.InSession() && q.holder != s.k.Identity() {
			if heads == nil {
				heads = map[*queue]keeper.AttemptID{}
			}
			heads[q] = keeper.AttemptID(q.head)
		}
	}
	s.k.Mu.Unlock()
	var ended map[*queue]bool
	asked := make(map[keeper.Process]bool, len(heads))
	for q, head := range heads {
		if !s.k.Liveness.EndedIn(ctx, asked, keeper.ProcessOf(head[:])) {
			continue
		}
		// If the row is locked, for example by a guarded transaction, a later poll tries again.
		gone, err := s.statements.releaseAll(ctx, []keeper.Abandoned{{Name: q.name, ID: head}})
		if err == nil && gone {
			if ended == nil {
				ended = map[*queue]bool{}
			}
			ended[q] = true
		}
	}
	return ended
}

// read reads the tickets of one owner, and judges them.
func (s *tickets) read(ctx context.Context, leases []*keeper.Lease) {
	for part := range slices.Chunk(leases, pollBatch) {
		sent := time.Now()
		standings, err := s.statements.standings(ctx, part)
		s.k.Mu.Lock()
		for _, l := range part {
			c := s.byLease[l]
			if c == nil {
				continue
			}
			if err == nil && c.queue.failing.IsZero() || s.failed(c.queue, err) {
				s.judge(c, standings[l.Attempt().ID], sent)
			}
		}
		s.k.Mu.Unlock()
	}
}

// failed notes how a statement for a queue ended, and reports whether it did without an error. An error that
// lasts ends the calls that wait in the queue, unless their tickets' renewals decide: the server cannot be
// reached, or it asks for another try. Mu is held.
func (s *tickets) failed(q *queue, err error) (ok bool) {
	class := s.statements.Dialect.Classify(err)
	switch {
	case err == nil:
		q.failing = time.Time{}
		return true
	case s.k.Ctx.Err() != nil || class == dialect.Retry || class == dialect.Busy || class == dialect.Unready:
		return false
	case q.failing.IsZero():
		q.failing = time.Now()
		s.k.Mu.Note(s.k.Ctx, trace.Event{Name: trace.WaitFailed, Err: err})
	}
	q.pause = min(max(2*q.pause, minPoll), maxFailing)
	if time.Since(q.failing) < lasts || s.statements.Dialect.Disconnected(err) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	for _, c := range q.waiting {
		c.err = err
		signal(c.event)
	}
	return false
}

// judge acts on what is ahead of a ticket. Mu is held.
func (s *tickets) judge(c *ticket, p standing, sent time.Time) {
	l := c.lease
	q, units, capacity := c.queue, int64(c.units), int64(c.capacity)
	q.head = p.first
	if q.holder = keeper.ProcessOf(p.first); p.left > 0 && q.holder != s.k.Identity() {
		q.others = true
	}
	switch {
	case !l.Live() || c.granted:
	case p.left <= 0:
		s.k.Lose(l, trace.CauseTaken, "its ticket had expired, or was taken away, while it waited")
	case p.confirmed: // the answer was lost
		l.Prolong(sent.Add(p.left))
		s.grant(c)
	case p.units+units <= capacity:
		if !slices.Contains(q.ready, c) {
			q.ready = append(q.ready, c)
		}
	case p.living+units <= capacity:
		q.expired = true
	}
	if len(q.waiting) > 0 && q.waiting[0] == c && q.ahead != p.ahead {
		if q.ahead = p.ahead; !s.k.Notifier.Listening() { // who listens hears of its turn
			q.pause = minPoll // the queue moves
		}
	}
}
