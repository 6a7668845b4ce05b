package sqllock

import (
	"context"
	"slices"
	"time"
)

const (
	// turn is how long a process passes a lock on within itself before others
	// get a chance, and rest how long it then leaves the lock to them.
	turn = time.Second
	rest = 2 * maxPoll
)

// queue is the line of those goroutines of this process that wait for one key.
// Only the first of them asks the database.
type queue struct {
	key     string
	waiters []*waiter
	local   *Lease // the lease on the key that this process holds
	since   time.Time
}

// waiter is one call of Acquire.
type waiter struct {
	q *queue
	settings
	name  []byte
	event chan struct{} // something of what follows has changed

	// Under the manager's mu:
	ask     bool      // the lock may be free
	from    time.Time // when it may be asked for
	asking  bool      // a statement is under way
	passing bool      // it is to be handed the lock
	gone    bool
	lease   *Lease // which it was handed

	watched    bool          // it was looked at
	poll       time.Duration // the interval at which the lock is looked at
	registered time.Time     // when others were told last that it waits
}

// queue finds or makes a key's queue; m.mu is held.
func (m *manager) queue(key string) *queue {
	q := m.queues[key]
	if q == nil {
		q = &queue{key: key}
		m.queues[key] = q
	}
	return q
}

// join puts a call in line.
func (m *manager) join(key string, name []byte, s settings) *waiter {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.queue(key)
	w := &waiter{q: q, settings: s, name: name, event: make(chan struct{}, 1)}
	q.waiters = append(q.waiters, w)
	w.lease = q.again(s.by)
	m.wake(key)
	return w
}

// leave takes a call out of line; m.mu is held.
func (m *manager) leave(w *waiter) {
	w.gone = true
	m.waits.drop(w)
	q := w.q
	q.waiters = slices.DeleteFunc(q.waiters, func(o *waiter) bool { return o == w })
	m.wake(q.key)
}

// wake has the first in line ask the database, unless this process has the
// lock; m.mu is held. A queue without use is dropped.
func (m *manager) wake(key string) {
	switch q := m.queues[key]; {
	case q == nil || q.local != nil:
	case len(q.waiters) == 0:
		delete(m.queues, key)
	default:
		q.waiters[0].ask = true
		signal(q.waiters[0].event)
	}
}

// next is the waiter to hand the lock over to, if it is to stay in this
// process; m.mu is held.
func (q *queue) next() *waiter {
	if q == nil || len(q.waiters) == 0 {
		return nil
	}
	w := q.waiters[0]
	switch now := time.Now(); {
	case w.asking || w.passing:
		return nil
	case now.Sub(q.since) > turn:
		w.from = now.Add(rest)
		return nil
	}
	w.passing = true
	return w
}

// wait is a call's way through the queue to its lease.
func (m *manager) wait(ctx context.Context, w *waiter) (*Lease, error) {
	for {
		m.mu.Lock()
		switch pause := time.Until(w.from); {
		case w.lease != nil:
			m.leave(w)
			m.mu.Unlock()
			return w.lease, nil
		case m.closed:
			m.leave(w)
			m.mu.Unlock()
			return nil, ErrClosed
		case ctx.Err() != nil:
			m.leave(w)
			m.mu.Unlock()
			return nil, context.Cause(ctx)
		case w.ask && !w.passing && w.q.waiters[0] == w && pause <= 0:
			w.ask, w.asking = false, true
			m.mu.Unlock()
			lease, left, err := m.ask(ctx, w)
			m.mu.Lock()
			w.asking = false
			if lease != nil || err != nil {
				m.leave(w)
				m.mu.Unlock()
				return lease, err
			}
			if w.q.local == nil {
				m.watch(w, left)
			} else if w.lease = w.q.again(w.by); w.lease != nil {
				signal(w.event)
			}
			m.mu.Unlock()
		case w.ask && !w.passing && w.q.waiters[0] == w:
			m.waits.set(w, w.from)
			m.mu.Unlock()
		default:
			m.mu.Unlock()
		}
		select {
		case <-w.event:
		case <-ctx.Done():
		}
	}
}
