package sqllock

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

const (
	// announceEvery is how often a waiter's row, which lasts for lockstmt.WaiterLife, is renewed. A
	// call that waits for less than announceAfter gets no row.
	announceEvery = time.Second
	announceAfter = 8 * time.Millisecond
)

// announce schedules the writing of the rows of waiters, so that other processes list them and
// notify this process when they release. The keeper's Mu is held.
func (m *leases) announce(batch []*waiter, now time.Time) {
	for _, w := range batch {
		if w.watched && !w.gone && w.poll >= min(announceAfter, m.most) && now.Sub(w.announces) >= announceEvery {
			w.announces = now
			m.unannounced.Set(w, now)
		}
	}
}

// announcement is what to write of a waiter.
type announcement struct {
	*waiter
	row keeper.Announcement
}

// writeAnnouncements writes the rows of waiters. A write that fails is repeated after announceEvery.
func (m *leases) writeAnnouncements(ctx context.Context, due []*waiter) {
	ctx, cancel := context.WithTimeout(ctx, core.CleanupBound())
	defer cancel()
	m.k.Notifier.Need()
	for _, part := range lockname.ByOwner(m.announcements(due), func(a announcement) lockname.Name { return a.row.Name }) {
		for some := range core.Chunks(part, pollBatch) { // the names in one statement must differ
			rows := make([]keeper.Announcement, len(some))
			for i, a := range some {
				rows[i] = a.row
			}
			err := m.statements.Announce(ctx, m.statements.Self, rows)
			m.k.Mu.Lock()
			for _, a := range some {
				a.announced = a.announced || err == nil
			}
			m.k.Mu.Unlock()
		}
	}
}

// announcements returns what to write of those that still wait.
func (m *leases) announcements(due []*waiter) []announcement {
	m.k.Mu.Lock()
	defer m.k.Mu.Unlock()
	rows := make([]announcement, 0, len(due))
	for _, w := range due {
		if !w.gone {
			rows = append(rows, announcement{w, keeper.Announcement{Name: w.q.name, Waiting: len(w.q.waiters)}})
		}
	}
	return rows
}

// interval returns the time until the next poll of a lock with this token. It grows with each
// poll. It is longer when notifications arrive or when the process waits for many locks.
func (m *leases) interval(w *waiter, token int64) time.Duration {
	most := m.most
	if w.seen != 0 && token > w.seen && !m.k.Waker.Hears() {
		most = min(most, hotPoll)
	}
	w.seen = token
	if m.k.Notifier.Listening() && w.notified {
		most = m.lazy
	}
	w.notified = w.announced
	many := time.Duration(m.waits.Len()/pollBatch) * pollSpace
	return max(min(2*w.poll, most), many)
}

// Notified makes the first local waiter for a key try again.
func (m *leases) Notified(name lockname.Name, _ []byte) {
	q := m.queues[name]
	if q == nil || q.local != nil || len(q.waiters) == 0 {
		return
	}
	q.turns.taken()
	q.waiters[0].ask = true
	signal(q.waiters[0].event)
}

// Woken tells the first local waiter of each lock that process p held to retry.
func (m *leases) Woken(p keeper.Process) {
	var first []*waiter
	for _, q := range m.queues {
		if q.local == nil && len(q.waiters) > 0 && q.waiters[0].holder == p {
			first = append(first, q.waiters[0])
		}
	}
	for _, w := range first {
		w.q.turns.taken()
		if len(first) == 1 {
			w.ask = true
			signal(w.event)
		} else if w.watched { // one read for all of them
			m.waits.Set(w, time.Now())
		}
	}
}

// Missed makes all waiters poll at once.
func (m *leases) Missed() {
	for _, q := range m.queues {
		if i := slices.IndexFunc(q.waiters, func(w *waiter) bool { return w.watched }); i >= 0 {
			m.waits.Set(q.waiters[i], time.Now())
		}
	}
}
