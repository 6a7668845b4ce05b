package sqllock

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

// queue holds the goroutines of this process that wait for one key. Only the first of them
// queries the database.
type queue struct {
	name    lockname.Name
	waiters []*waiter
	first   [1]*waiter    // of waiters, if there is only one
	local   *keeper.Lease // the lease on the key that this process holds
	turns   turns
}

// waiter is one call of Acquire.
type waiter struct {
	q *queue
	keeper.Settings
	event chan struct{} // a field below has changed; nil until the call waits

	// Under the keeper's Mu:
	ask     bool // query the database: the lock may be free
	asking  bool // a statement is under way
	passing bool // a release is handing the lock over to it
	gone    bool
	lease   *keeper.Lease // the lease that it was given

	watched   bool             // it is being polled
	poll      time.Duration    // its poll interval
	seen      int64            // the lock's token at the last poll
	announces time.Time        // when the writing of its row in the table of waiters was last scheduled
	announced bool             // the row is written
	notified  bool             // and was at the last poll: a release since then notifies
	holder    keeper.Process   // that had the lock at the last poll
	ended     keeper.AttemptID // has the lock although its process has ended; zero if none
}

// queue finds or creates a key's queue. The keeper's Mu is held.
func (m *leases) queue(name lockname.Name) *queue {
	q := m.queues[name]
	if q == nil {
		q = &queue{name: name}
		q.waiters = q.first[:0]
		m.queues[name] = q
	}
	return q
}

// add adds a call. The keeper's Mu is held.
func (q *queue) add(s keeper.Settings) *waiter {
	w := &waiter{q: q, Settings: s}
	q.waiters = append(q.waiters, w)
	return w
}

// join adds a call to its key's queue. If it is asking, the caller must call ask now.
func (m *leases) join(name lockname.Name, s keeper.Settings) *waiter {
	m.k.Mu.Lock()
	defer m.k.Mu.Unlock()
	w := m.queue(name).add(s)
	if w.lease = w.q.again(s.By); w.lease == nil {
		w.q.local.Want()
	}
	m.wake(name)
	m.asksNow(w)
	return w
}

// asksNow reports whether w is the waiter that must ask the database now. The caller must then
// call ask. The keeper's Mu is held.
func (m *leases) asksNow(w *waiter) bool {
	if m.k.Closed || w.lease != nil || !w.ask || w.passing || w.q.waiters[0] != w || w.q.turns.resting(time.Now()) {
		return false
	}
	w.ask, w.asking = false, true
	return true
}

// askAtOnce is how many waiting calls, for different keys, may query the database at the same
// time. Each needs a connection, and the pool may be unbounded.
const askAtOnce = 64

// ask makes the attempt of the first waiter of a key. Unless it returns a lease or an error, the
// waiter stays in the queue.
func (m *leases) ask(ctx context.Context, w *waiter) (*keeper.Lease, error) {
	lease, v, err := m.askInTurn(ctx, w)
	return m.asked(w, lease, v, err), err
}

// asked ends the attempt of a waiter, and returns its lease. Without a lease and an error the waiter stays in
// the queue.
func (m *leases) asked(w *waiter, lease *keeper.Lease, v keeper.AttemptResult, err error) *keeper.Lease {
	m.k.Mu.Lock()
	defer m.k.Mu.Unlock()
	w.asking = false
	switch {
	case lease != nil || err != nil:
		if lease != nil && w.watched {
			m.k.Waker.Want(w.q.name) // others wait for it as this process has
		}
		m.leave(w)
	case w.q.local == nil: // another process has the lock
		m.watch(w, v.State)
	default:
		if w.lease = w.q.again(w.By); w.lease != nil {
			signal(w.event)
		}
	}
	return lease
}

func (m *leases) askInTurn(ctx context.Context, w *waiter) (*keeper.Lease, keeper.AttemptResult, error) {
	select {
	case m.asking <- struct{}{}:
		defer func() { <-m.asking }()
	case <-ctx.Done():
		return nil, keeper.AttemptResult{}, context.Cause(ctx)
	}
	if ended := w.ended; ended != (keeper.AttemptID{}) {
		w.ended = keeper.AttemptID{}
		return m.takeEnded(ctx, w.q.name, w.Settings, ended)
	}
	return m.attempt(ctx, w.q.name, w.Settings)
}

// Waiting returns how many calls are in the queues. The keeper's Mu is held.
func (m *leases) Waiting() (n int) {
	for _, q := range m.queues {
		n += len(q.waiters)
	}
	return n
}

// leave removes a call from its queue. The keeper's Mu is held.
func (m *leases) leave(w *waiter) {
	w.gone = true
	m.waits.Drop(w)
	m.unannounced.Drop(w)
	q := w.q
	q.waiters = slices.DeleteFunc(q.waiters, func(o *waiter) bool { return o == w })
	m.wake(q.name)
}

// wake makes the first waiter query the database, unless this process has the lock. It deletes
// an empty queue. The keeper's Mu is held.
func (m *leases) wake(name lockname.Name) {
	switch q := m.queues[name]; {
	case q == nil || q.local != nil:
	case len(q.waiters) == 0:
		delete(m.queues, name)
		m.rivals.Drop(q)
	default:
		q.waiters[0].ask = true
		signal(q.waiters[0].event)
	}
}

// next returns the waiter to hand the lock over to, or nil if the lock must be freed. If the
// first waiter has been handed the lock already and has not left the queue, the lease that is released
// now is another one, which was taken away by force. The keeper's Mu is held.
func (m *leases) next(q *queue) *waiter {
	if q == nil || len(q.waiters) == 0 {
		return nil
	}
	w := q.waiters[0]
	if w.lease != nil || w.asking || w.passing || m.yields(q, time.Now()) {
		return nil
	}
	w.passing = true
	return w
}

// wait waits in the queue until the call has its lease.
func (m *leases) wait(ctx context.Context, w *waiter) (*keeper.Lease, error) {
	m.k.Mu.Lock()
	w.event = make(chan struct{}, 1)
	m.k.Mu.Unlock()
	for {
		ended := keeper.Ended(ctx)
		m.k.Mu.Lock()
		over, err := m.over(w, ended)
		if over {
			m.leave(w)
			m.k.Mu.Unlock()
			return w.lease, err
		}
		asks := m.asksNow(w)
		if w.ask && !w.passing && w.q.waiters[0] == w { // the process rests
			m.waits.Set(w, w.q.turns.next(time.Now()))
		}
		m.k.Mu.Unlock()
		if asks {
			if lease, err := m.ask(ctx, w); lease != nil || err != nil {
				return lease, err
			}
		}
		select {
		case <-w.event:
		case <-ctx.Done():
		}
	}
}

// over reports whether a call, whose context ended for this reason, need not wait any longer, and its error unless it was
// given a lease. The keeper's Mu is held.
func (m *leases) over(w *waiter, ended error) (bool, error) {
	switch {
	case w.lease != nil:
		return true, nil
	case m.k.Closed:
		return true, ErrClosed
	}
	return ended != nil, ended
}

// again counts one more acquisition of the lease that this process holds. It returns nil if by
// may not acquire it again. The keeper's Mu is held.
func (q *queue) again(by any) *keeper.Lease {
	if q == nil || q.local == nil || !q.local.Again(by) {
		return nil
	}
	return q.local
}

// share gives a newly granted lease to the waiting calls with the same AcquireOptions.Reentry. The
// keeper's Mu is held.
func (q *queue) share() {
	for _, w := range q.waiters {
		if w.lease == nil && !w.asking && !w.passing {
			if w.lease = q.again(w.By); w.lease != nil {
				signal(w.event)
			}
		}
	}
}
