package simulation

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

const (
	// leaveBound is how long a call that gives up waits until its ticket is gone.
	leaveBound = time.Second
	// idle is how long a line may stand still although it is free, and nothing fails.
	idle = 1500 * time.Millisecond
)

// look checks what a statement has committed.
func (w *tickets) look(s *statement) {
	was, is, now := w.seen, w.records.committed.tickets, micros(time.Now())
	w.seen = is
	for _, l := range w.lines {
		find := func(list []record, t record) record {
			for _, o := range list {
				if o[ticketToken] == t[ticketToken] && same(o[ticketName], t[ticketName]) {
					return o
				}
			}
			return nil
		}
		for _, t := range was {
			if string(blob(t[ticketName])) == l.row && find(is, t) == nil {
				w.endedTicket(l, t, s, now)
			}
		}
		for _, t := range is {
			if string(blob(t[ticketName])) != l.row {
				continue
			}
			before := find(was, t)
			switch {
			case before == nil:
				w.entered(l, t, s)
			case as[int64](t[ticketExpires]) > as[int64](before[ticketExpires]) && expired(before, now):
				w.violatef("ticket %d of %s was over, and %s revives it", t[ticketToken], l.row, s.name)
			}
			if t[ticketGranted] != nil && (before == nil || before[ticketGranted] == nil) {
				w.grantedIn(l, t, before != nil, now)
			}
		}
	}
	for _, c := range w.callers {
		if a := w.asked[c]; a != nil && c.busy {
			w.crowds(a)
		}
	}
}

// entered checks a new ticket.
func (w *tickets) entered(l *line, t record, s *statement) {
	p := &passage{token: as[int64](t[ticketToken]), units: as[int64](t[ticketUnits]), capacity: as[int64](t[ticketCapacity]), of: s.conn.of}
	if p.token <= l.last {
		w.violatef("ticket %d of %s is behind %d, which entered before", p.token, l.row, l.last)
	}
	l.last, l.passages[p.token] = max(l.last, p.token), p
}

// endedTicket notes how a ticket ended.
func (w *tickets) endedTicket(l *line, t record, s *statement, now int64) {
	p := l.passages[as[int64](t[ticketToken])]
	if p == nil { // of an episode before
		return
	}
	p.end, p.late = released, expired(t, now)
	if s.name == "locks.clear" {
		p.end = cleared
	}
	if p.end == cleared && !p.late {
		w.violatef("ticket %d of %s was not over, and is cleared", p.token, l.row)
	}
}

// grantedIn checks a grant in the table: beside those that are granted, those ahead, and those who trust their leases.
func (w *tickets) grantedIn(l *line, t record, waited bool, now int64) {
	p := l.passages[as[int64](t[ticketToken])]
	if p == nil {
		return
	}
	p.granted, p.waited, l.moved = true, waited, time.Now()
	var others, ahead, trusted int64
	for _, o := range w.records.committed.line(t[ticketName]) {
		n := as[int64](o[ticketUnits])
		if o[ticketGranted] != nil && o[ticketToken] != t[ticketToken] {
			others += n
		}
		if as[int64](o[ticketToken]) < p.token && !expired(o, now) {
			ahead += n
		}
	}
	for _, c := range w.holders(l) {
		if a := w.asked[c]; a.passage != p {
			trusted += a.n
		}
	}
	switch {
	case waited && expired(t, now):
		w.violatef("ticket %d of %s is over, and is granted", p.token, l.row)
	case others+p.units > p.capacity:
		w.violatef("ticket %d of %s is granted beside %d units of %d", p.token, l.row, others, p.capacity)
	case ahead+p.units > p.capacity:
		w.violatef("ticket %d of %s is granted before %d units of %d that are ahead of it", p.token, l.row, ahead, p.capacity)
	case trusted+p.units > p.capacity:
		w.violatef("ticket %d of %s is granted, and callers trust leases of %d units of %d", p.token, l.row, trusted, p.capacity)
	}
	for _, o := range l.passages {
		o.taken = o.taken || o.granted && o.end != lasts && others+p.units+o.units > p.capacity
	}
}

// crowds notes whether a call has no room.
func (w *tickets) crowds(a *asked) {
	taken := int64(0)
	for _, t := range w.records.committed.line([]byte(a.line.row)) {
		taken += as[int64](t[ticketUnits])
	}
	a.crowded = a.crowded || taken+a.n > a.capacity
}

// ended checks the result of a call.
func (w *tickets) ended(c *caller) {
	h, a := w.held[c], w.asked[c]
	if a.of.life.over.Load() { // its process is gone
		w.note("killed", c.id)
		c.cancel()
		c.owes = false
		return
	}
	if c.call == release {
		w.endedRelease(c, h, a)
		return
	}
	held, other := &sqllock.HeldError{}, &fairlock.CapacityError{}
	switch {
	case c.err == nil && h.lease == nil:
		w.violatef("%s of caller %d: neither a lease nor an error", c.call, c.id)
	case c.err == nil:
		w.granted(c, h.lease, a)
	case errors.As(c.err, &held) && !w.leaves(c):
		w.note("held", c.id)
		if !a.crowded {
			w.violatef("%s of caller %d says that %s is held, and there was room all the time", c.call, c.id, a.line.row)
		}
	case errors.As(c.err, &other) && a.line.mixed:
		w.note("other capacity", c.id)
	case c.ctx.Err() != nil && errors.Is(c.err, context.Cause(c.ctx)):
		w.note("gave up", c.id)
		w.untidy = w.untidy || !a.gaveUp.IsZero() && time.Since(a.gaveUp) >= leaveBound
	case w.spared, w.losses == w.missed, errors.Is(c.err, errUnknown):
		w.violatef("%s of caller %d without a fault: %v", c.call, c.id, c.err)
	default:
		w.note("error", c.id)
	}
	a.line.moved = time.Now()
	if c.owes = h.lease != nil; !c.owes {
		c.cancel()
	}
}

// granted checks a new lease.
func (w *tickets) granted(c *caller, got *lease, a *asked) {
	w.grants++
	w.note("granted", c.id, c.key)
	token, l := got.Token(), a.line
	p := l.passages[token]
	switch {
	case got.Key() != c.key:
		w.violatef("caller %d asked for %s and got %s", c.id, c.key, got.Key())
	case p == nil || !p.granted:
		w.violatef("caller %d got token %d of %s, which no statement granted", c.id, token, l.row)
	case p.caller != 0:
		w.violatef("callers %d and %d got the same term of %s", p.caller-1, c.id, l.row)
	case p.units != a.n || p.capacity != a.capacity || p.of != a.of:
		w.violatef("caller %d got a ticket of %d of %d of %s, and asked for %d of %d", c.id, p.units, p.capacity, l.row, a.n, a.capacity)
	case p.waited && !w.leaves(c):
		w.violatef("%s of caller %d has waited for %s", c.call, c.id, l.row)
	case token <= l.alone, a.n == a.capacity && token <= l.shared:
		w.violatef("caller %d got token %d of %s, after %d and, alone, %d", c.id, token, l.row, l.shared, l.alone)
	}
	if p == nil {
		p = &passage{}
	}
	a.passage, p.caller, l.shared = p, c.id+1, max(l.shared, token)
	if a.n == a.capacity {
		l.alone = max(l.alone, token)
	}
	if w.losses != w.missed || !w.leaves(c) || w.ttl != longTTL {
		return
	}
	for _, o := range w.callers {
		if b := w.asked[o]; b != nil && o != c && o.busy && !o.finished.Load() && w.leaves(o) && o.process == c.process && b.line == l && o.number < c.number && o.ctx.Err() == nil && a.n+b.n > a.capacity && b.capacity == a.capacity {
			w.violatef("caller %d got %s before caller %d of the same process, which had asked before", c.id, l.row, o.id)
		}
	}
}

func (w *tickets) endedRelease(c *caller, h *holding, a *asked) {
	p, cause := a.passage, context.Cause(h.lease.Context())
	w.note("released", c.id)
	switch {
	case h.lease.Context().Err() == nil:
		w.violatef("the context of caller %d goes on after its release", c.id)
	case c.err == nil && a.taken:
		w.violatef("the release of caller %d says ok, and others had its units of %s before", c.id, a.line.row)
	case c.err == nil && p.end == lasts:
		w.violatef("the release of caller %d says ok, and its ticket is in %s", c.id, a.line.row)
	case c.err != nil && (w.spared || w.losses == w.missed && w.ttl == longTTL):
		w.violatef("the release of caller %d without a fault: %v", c.id, c.err)
	case errors.Is(c.err, sqllock.ErrLost) && errors.Is(cause, sqllock.ErrReleased) && !p.late:
		w.violatef("the release of caller %d says lost, and its term of %s was %s in time", c.id, a.line.row, p.end)
	case c.err != nil && !errors.Is(c.err, sqllock.ErrLost) && !errors.Is(c.err, holdfast.ErrUnknown) && w.losses == w.missed:
		w.violatef("the release of caller %d: %v", c.id, c.err)
	}
	c.cancel()
	c.owes, h.lease, a.line.moved = false, nil, time.Now()
}

// check checks the holders of each line: callers that trust their leases have their tickets in it, and room beside each other.
func (w *tickets) check() {
	w.swept()
	now := micros(time.Now())
	for _, l := range w.lines {
		held, capacity, tickets := int64(0), int64(fairlock.MaxPermits), w.records.committed.line([]byte(l.row))
		for _, c := range w.holders(l) {
			a := w.asked[c]
			held, capacity = held+a.n, min(capacity, a.capacity)
			if !slices.ContainsFunc(tickets, func(t record) bool {
				return t[ticketToken] == a.passage.token && t[ticketGranted] != nil && !expired(t, now)
			}) {
				w.violatef("caller %d trusts its lease of %s, token %d, and the ticket is over", c.id, l.row, a.passage.token)
			}
		}
		if held > capacity {
			w.violatef("callers trust leases of %d units of %s, which has %d", held, l.row, capacity)
		}
		w.orphans(l, tickets)
		w.stands(l)
	}
}

// orphans checks that a call which has ended without its lock has taken its ticket with it: in an episode in which each
// statement was answered, and no call that gave up waited too long.
func (w *tickets) orphans(l *line, tickets []record) {
	for _, c := range w.callers {
		if a := w.asked[c]; a != nil && a.gaveUp.IsZero() && c.busy && c.ctx.Err() != nil {
			a.gaveUp = time.Now()
		}
	}
	if w.losses != w.missed || w.untidy || w.ttl != longTTL {
		return
	}
	calls := map[*adapter]int{}
	for _, c := range w.callers {
		if a := w.asked[c]; a != nil && a.line == l && (c.busy || c.owes) {
			calls[a.of]++
		}
	}
	for _, t := range tickets {
		if p := l.passages[as[int64](t[ticketToken])]; p != nil {
			if calls[p.of]--; calls[p.of] < 0 {
				w.violatef("ticket %d of process %d is in %s, and no call has it", p.token, p.of.id, l.row)
			}
		}
	}
}

// stands checks that a line in which a call waits moves, if it is free and nothing fails.
func (w *tickets) stands(l *line) {
	waits := false
	for _, c := range w.callers {
		a := w.asked[c]
		if a == nil || a.line != l {
			continue
		}
		if c.owes {
			l.moved = time.Now()
		}
		waits = waits || c.busy && w.leaves(c)
	}
	if !w.calm || !waits {
		l.moved = time.Now()
	}
	if w.ttl == ttl && time.Since(l.moved) > ttl+idle {
		w.violatef("calls wait in %s, which has not moved for %v although nobody has it", l.row, time.Since(l.moved))
	}
}

// rested checks that no call has left a ticket that lasts; nor any, where none expires.
func (w *tickets) rested() {
	now := micros(time.Now())
	for _, t := range w.records.committed.tickets {
		if !expired(t, now) || w.ttl == longTTL && slices.ContainsFunc(w.lines, func(l *line) bool { return l.passages[as[int64](t[ticketToken])] != nil }) {
			w.violatef("ticket %d is in %s for %d µs, and no call has it", t[ticketToken], blob(t[ticketName]), as[int64](t[ticketExpires])-now)
		}
	}
}
