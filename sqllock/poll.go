package sqllock

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect/lockstmt"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

// The poll intervals of a lock that another process holds: short at first, then longer. One
// goroutine polls for all waiters, with one statement for many keys. It holds no connection in
// between.
const (
	minPoll  = 2 * time.Millisecond
	maxPoll  = 50 * time.Millisecond
	lazyPoll = time.Second // when a release notifies this process
	// hotPoll replaces maxPoll while the lock changes hands: then it is free more often than a
	// waiter looks.
	hotPoll   = 10 * time.Millisecond
	pollSlack = minPoll
	pollBatch = 256
	// pollSpace is the minimum time between poll statements when the process waits for many
	// locks: at most a hundred polls per second.
	pollSpace = 10 * time.Millisecond
)

// watch schedules polls of the lock that w waits for. The keeper's Mu is held. now.Left is the time
// until the lock expires, unless it is renewed. If it is 0, the lock has expired and a
// guarded transaction still holds it; then the interval grows.
func (m *leases) watch(w *waiter, now lockstmt.State) {
	w.q.turns.saw(now.Token)
	m.await(w, now)
	if w.poll = m.interval(w, now.Token); now.Left > 0 || !w.watched {
		w.poll = minPoll
	}
	w.watched = true
	pause := keeper.Jitter(soonest(w.poll, now.Left))
	if m.k.Liveness.Suspected(w.holder) { // the poll asks whether it has ended
		pause = 0
	}
	m.waits.Set(w, time.Now().Add(pause))
}

// await listens to the process that has the lock: at once if this process listens already, and
// otherwise once the call has waited for some polls. The keeper's Mu is held.
func (m *leases) await(w *waiter, now lockstmt.State) {
	w.holder = keeper.ProcessOf(now.Attempt)
	if !w.announces.IsZero() || m.k.Waker.Hears() {
		m.k.Waker.Await(w.holder)
	}
}

// soonest returns the interval, or the time until the lock expires if that is shorter.
func soonest(interval, left time.Duration) time.Duration {
	if left > 0 {
		return min(interval, left)
	}
	return interval
}

// poll reads the locks of waiters and wakes those whose lock is free.
func (m *leases) poll(ctx context.Context, due []*waiter) {
	ctx, cancel := context.WithTimeout(ctx, core.CleanupBound())
	defer cancel()
	for batch := range slices.Chunk(due, pollBatch) {
		states, err := m.readStates(ctx, batch)
		ended := m.ended(ctx, states)
		m.k.Mu.Lock()
		for _, w := range batch {
			m.saw(w, states[w.q.name], ended, err)
		}
		m.announce(batch, time.Now())
		m.k.Mu.Unlock()
	}
}

// ended says of the processes that have locks whether they have ended. It asks once about each.
func (m *leases) ended(ctx context.Context, states map[lockname.Name]lockstmt.State) map[keeper.Process]bool {
	var ended map[keeper.Process]bool
	for _, s := range states {
		p := keeper.ProcessOf(s.Attempt)
		if s.Left == 0 || !p.InSession() {
			continue
		}
		if ended == nil {
			ended = map[keeper.Process]bool{}
		}
		m.k.Liveness.EndedIn(ctx, ended, p)
	}
	return ended
}

// saw tells a waiter the state of its lock; the lock is free if there is none. The keeper's Mu is held.
func (m *leases) saw(w *waiter, now lockstmt.State, ended map[keeper.Process]bool, err error) {
	if w.gone || w.asking || w.passing || w.q.local != nil {
		return
	}
	w.q.turns.saw(now.Token)
	over := ended[keeper.ProcessOf(now.Attempt)]
	if over {
		w.ended = keeper.AttemptID(now.Attempt)
	}
	if now.Left == 0 || over || err != nil {
		w.ask = true // the attempt returns the error, if it persists
		signal(w.event)
		return
	}
	m.await(w, now)
	w.watched = true
	w.poll = max(m.interval(w, now.Token), minPoll)
	m.waits.Set(w, time.Now().Add(keeper.Jitter(soonest(w.poll, now.Left))))
}

// readStates reads the state of each lock that has a row.
func (m *leases) readStates(ctx context.Context, batch []*waiter) (states map[lockname.Name]lockstmt.State, err error) {
	names := make([]lockname.Name, len(batch))
	for i, w := range batch {
		names[i] = w.q.name
	}
	states = make(map[lockname.Name]lockstmt.State, len(batch))
	for _, part := range lockname.ByOwner(names, func(n lockname.Name) lockname.Name { return n }) {
		err = m.statements.OnConn(ctx, func(q core.Querier) error {
			read, err := m.statements.sql.Waits.Run(ctx, q, part)
			maps.Copy(states, read)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return states, nil
}
