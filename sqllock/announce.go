package sqllock

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

const (
	// waiterLife is how long a waiter's row lasts, and announceEvery how often it is renewed. A
	// call that waits for less than announceAfter gets no row.
	waiterLife    = 3 * time.Second
	announceEvery = time.Second
	announceAfter = 8 * time.Millisecond
	// announceBound is how long one try to write a row waits for SQLite's only writer. Its waits get
	// longer and longer, and a process that hands a lock over among its calls writes all the time: of
	// longer tries, some took a second.
	announceBound = 5 * time.Millisecond
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

// announcement says how many calls of this process wait for a waiter's lock.
type announcement struct {
	*waiter
	count int
}

// writeAnnouncements writes the rows of waiters. A write that fails is repeated after announceEvery.
func (m *leases) writeAnnouncements(ctx context.Context, due []*waiter) {
	ctx, cancel := context.WithTimeout(ctx, core.CleanupBound())
	defer cancel()
	m.k.Notifier.Need()
	for _, part := range lockname.ByOwner(m.announcements(due), func(a announcement) lockname.Name { return a.q.name }) {
		for rows := range core.Chunks(part, pollBatch) { // the names in one statement must differ
			err := m.statements.announce(ctx, rows)
			m.k.Mu.Lock()
			for _, r := range rows {
				r.announced = r.announced || err == nil
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
			rows = append(rows, announcement{w, len(w.q.waiters)})
		}
	}
	return rows
}

func (s *statements) announce(ctx context.Context, rows []announcement) error {
	d := &s.Dialect.Leases
	args := []any{rows[0].q.name.Owner, s.Self[:], s.Holder, waiterLife.Microseconds()}
	texts := make([]string, len(rows))
	for i, r := range rows {
		n := len(args) - 1 // without the owner
		args = append(args, r.q.name.Row(), int64(r.count))
		texts[i] = strings.NewReplacer("{name}", "$"+strconv.Itoa(n+1), "{count}", "$"+strconv.Itoa(n+2)).Replace(d.AnnounceRow)
	}
	stmt := s.Compile("announce", strings.ReplaceAll(d.Announce, "{rows}", strings.Join(texts, ", ")))
	for {
		err := s.OnConn(ctx, func(q core.Querier) error {
			return d.TakeBound.During(ctx, q, announceBound, func() error {
				_, err := stmt.Exec(ctx, q, args...)
				return err
			})
		})
		if d.TakeBound.Before == nil || s.Dialect.Classify(err) != dialect.Busy || ctx.Err() != nil {
			return err
		}
	}
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
