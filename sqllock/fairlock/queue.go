package fairlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

const (
	// enterBatch is how many tickets enter a queue in one transaction. That transaction keeps
	// the key's row locked.
	enterBatch = 64
	// firstBatch is the maximum number of tickets at the head of a queue that a poll reads.
	firstBatch = 64
)

// queue holds this process's tickets for one key.
type queue struct {
	name     lockname.Name
	entering []*ticket // not in the table yet
	waiting  []*ticket // in the table, in the order of the queue

	joining  bool      // a goroutine lets tickets enter
	granting bool      // a goroutine grants, and clears expired tickets
	ready    []*ticket // waiting tickets that can be granted
	expired  bool      // expired tickets must be cleared
	ahead    int64     // tickets ahead of the first waiting one, at the last poll
	pause    time.Duration
	hurry    bool           // poll at once
	polls    int            // how often it was polled
	head     []byte         // the attempt of the first ticket, at the last poll
	holder   keeper.Process // and its process
	others   bool           // tickets of other processes were before those of this one
	failing  time.Time      // since when its statements fail; zero if they do not
}

// enqueue adds a call to the tickets that will enter the queue. Mu is held.
func (s *tickets) enqueue(c *ticket) {
	q := s.queues[c.name]
	if q == nil {
		q = &queue{name: c.name}
		s.queues[c.name] = q
	}
	c.queue = q
	q.entering = append(q.entering, c)
	s.serve(q)
}

// serve starts the goroutines that write for a queue. A grant does not wait for the tickets that enter. Mu is held.
func (s *tickets) serve(q *queue) {
	if s.k.Closed {
		return
	}
	if len(q.entering) > 0 && !q.joining {
		q.joining = true
		s.running.Go(func() { s.join(q) })
	}
	if (len(q.ready) > 0 || q.expired) && !q.granting {
		q.granting = true
		s.running.Go(func() { s.grantReady(q) })
	}
}

// drop forgets a queue without tickets; Mu is held.
func (s *tickets) drop(q *queue) {
	if len(q.entering)+len(q.waiting) == 0 && !q.joining && !q.granting {
		if s.queues[q.name] == q { // a ticket that leaves late has a queue that is dropped already
			delete(s.queues, q.name)
		}
		s.polls.Drop(q)
	}
}

// join lets the tickets of a queue enter.
func (s *tickets) join(q *queue) {
	pause := core.NewBackoff()
	for {
		s.k.Mu.Lock()
		n := min(len(q.entering), enterBatch)
		if n == 0 {
			q.joining = false
			s.drop(q)
			s.k.Mu.Unlock()
			return
		}
		batch := slices.Clone(q.entering[:n])
		q.entering = slices.Clone(q.entering[n:])
		s.k.Mu.Unlock()

		ctx, cancel := context.WithTimeout(s.k.Ctx, core.CleanupBound())
		if again := s.enter(ctx, q, batch); again {
			_ = pause.Sleep(ctx)
		} else {
			pause = core.NewBackoff()
		}
		cancel()
	}
}

// grantReady grants the tickets of a queue that are ready, and clears expired ones.
func (s *tickets) grantReady(q *queue) {
	for {
		s.k.Mu.Lock()
		ready, expired := judged(q.ready), q.expired
		q.ready, q.expired = nil, false
		if len(ready) == 0 && !expired {
			q.granting = false
			s.drop(q)
			s.k.Mu.Unlock()
			return
		}
		s.k.Mu.Unlock()

		ctx, cancel := context.WithTimeout(s.k.Ctx, core.CleanupBound())
		if len(ready) > 0 {
			s.confirm(ctx, q, ready)
		}
		if expired {
			s.clear(ctx, q)
		}
		cancel()
	}
}

// judged returns the tickets of calls: a call that loses its ticket before its turn enters again, behind others.
func judged(ready []*ticket) []*keeper.Lease {
	leases := make([]*keeper.Lease, len(ready))
	for i, c := range ready {
		leases[i] = c.lease
	}
	return leases
}

func (s *tickets) entries(q *queue, batch []*ticket) []entry {
	entries := make([]entry, len(batch))
	for i, c := range batch {
		entries[i] = entry{Attempt: keeper.Attempt{Name: q.name, ID: s.k.NewAttemptID(), TTL: c.TTL}, units: c.units, capacity: c.capacity, now: c.now}
	}
	return entries
}

// enter lets tickets enter their queue. again reports whether to try again, after the engine
// rolled the transaction back.
func (s *tickets) enter(ctx context.Context, q *queue, batch []*ticket) (again bool) {
	entries := s.entries(q, batch)
	sent := time.Now()
	err := s.statements.enter(ctx, q.name, entries)
	class := s.statements.Dialect.Classify(err)
	// Nothing was written. An expired ctx is this function's own time limit, not the caller's.
	again = (class == dialect.Retry || class == dialect.Busy || err != nil && ctx.Err() != nil) && !errors.Is(err, holdfast.ErrUnknown)
	var v view
	why := err // the error of refused tickets
	if err == nil && slices.ContainsFunc(entries, func(e entry) bool { return e.state == refused && !e.now }) {
		v, why = s.statements.readQueue(ctx, q.name)
	}
	var unwanted []keeper.Attempt
	var left []*ticket // their calls wait until they are gone
	s.k.Mu.Lock()
	var reenter []*ticket
	first := len(q.waiting) == 0
	for i, c := range batch {
		e := entries[i]
		if c.gone && c.leaves {
			left = append(left, c)
		}
		switch c.tries++; {
		case e.state == refused && (c.gone || s.k.Closed):
		case again && c.now && c.tries >= core.DefaultAttempts:
			c.err = &holdfast.RetryError{Attempts: c.tries, Err: err}
		case again:
			reenter = append(reenter, c)
			continue
		case e.state == refused && err == nil && c.now:
			c.err = errRefused
		case e.state == refused && why != nil:
			c.err = why
		case e.state == refused && v.living > 0 && v.capacity != c.capacity:
			c.err = &CapacityError{Key: c.key, Permits: c.capacity, Others: v.capacity}
		case e.state == refused: // the other tickets have expired, or are gone by now
			q.expired = q.expired || v.all > 0
			s.serve(q)
			reenter = append(reenter, c)
			continue
		case err != nil: // the commit's answer was lost
			c.err = err
			s.k.Abandon(s, e.Attempt)
		case c.gone || s.k.Closed:
			unwanted = append(unwanted, e.Attempt)
		default:
			s.place(c, e, sent)
		}
		signal(c.event)
	}
	q.entering = append(reenter, q.entering...)
	// A release that began before these tickets were committed did not see them.
	if len(q.waiting) > 0 && (first || !s.k.Notifier.Listening()) {
		q.pause = minPoll
		s.pollIn(q, minPoll)
	}
	s.k.Mu.Unlock()
	s.giveBack(ctx, unwanted)
	s.haveLeft(left)
	return again || len(reenter) > 0
}

// giveBack releases tickets that nobody waits for any more.
func (s *tickets) giveBack(ctx context.Context, unwanted []keeper.Attempt) {
	for _, a := range unwanted {
		if _, err := s.releaseTicket(ctx, a); err != nil {
			s.k.Abandon(s, a)
		}
	}
}

// haveLeft ends the calls that waited until their tickets were gone.
func (s *tickets) haveLeft(left []*ticket) {
	s.k.Mu.Lock()
	defer s.k.Mu.Unlock()
	for _, c := range left {
		c.leaves = false
		signal(c.event)
	}
}

// place creates the lease of a ticket that is in the table. Mu is held. A waiting ticket has no
// trust window, so only a failed renewal ends it here.
func (s *tickets) place(c *ticket, e entry, sent time.Time) {
	c.lease = s.k.NewLease(s, e.Token, c.lock(), e.Attempt, c.Settings, sent)
	s.byLease[c.lease] = c
	s.k.KeepWaiting(c.lease, sent)
	if e.state == granted {
		s.grant(c)
	} else {
		c.queue.waiting = append(c.queue.waiting, c)
	}
	s.k.LoseOrphan(c.lease)
}

// grant gives a ticket to its call; Mu is held.
func (s *tickets) grant(c *ticket) {
	c.granted = true
	if c.queue.others {
		s.k.Waker.Want(c.name) // others wait for it as this process has
	}
	c.queue.waiting = without(c.queue.waiting, c)
	s.k.Grant(c.lease)
	signal(c.event)
}

// confirm records that tickets are granted.
func (s *tickets) confirm(ctx context.Context, q *queue, ready []*keeper.Lease) {
	for _, l := range ready {
		s.k.Mu.Lock()
		c := s.byLease[l]
		waits := c != nil && l.Live() && !c.granted
		s.k.Mu.Unlock()
		if !waits {
			continue
		}
		sent := time.Now()
		ok, err := s.statements.confirm(ctx, *l.Attempt())
		s.k.Mu.Lock()
		if err == nil && ok && l.Live() {
			l.Prolong(sent.Add(l.Attempt().TTL))
			if !c.granted { // the news of a release may have come first
				s.grant(c)
			}
		}
		s.failed(q, err)
		s.k.Mu.Unlock()
	}
	s.k.Mu.Lock()
	defer s.k.Mu.Unlock()
	switch {
	case len(q.waiting) == 0:
	case !q.failing.IsZero():
		s.pollIn(q, q.pause)
	default: // the next tickets may be granted, too
		s.pollIn(q, minPoll)
	}
}

// clear deletes expired tickets.
func (s *tickets) clear(ctx context.Context, q *queue) {
	n, err := s.statements.clearExpired(ctx, q.name)
	s.k.Mu.Lock()
	defer s.k.Mu.Unlock()
	s.failed(q, err)
	switch {
	case len(q.waiting) == 0:
	case err == nil && n > 0:
		s.pollNow(q.name)
	default: // locked, for example by a guarded transaction
		q.pause = min(2*q.pause, maxPoll)
		s.pollIn(q, q.pause)
	}
}
