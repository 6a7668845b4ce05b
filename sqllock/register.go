package sqllock

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
)

const (
	// waiterLife is how long the row of one who waits lasts, and registerEvery
	// how often it is renewed. Whoever waits for less than registerAfter has none.
	waiterLife    = 3 * time.Second
	registerEvery = time.Second
	registerAfter = 8 * time.Millisecond
)

// unregistered picks those waiters whose rows are due; m.mu is held.
func (m *manager) unregistered(batch []*waiter, now time.Time) (due []registration) {
	for _, w := range batch {
		if w.watched && w.poll >= registerAfter && now.Sub(w.registered) >= registerEvery {
			w.registered = now
			due = append(due, registration{w.name, len(w.q.waiters)})
		}
	}
	return due
}

// registration says how many calls of this process wait for a lock.
type registration struct {
	name  []byte
	count int
}

// register writes the rows, so that others see who waits, and ring the bell
// when they release. What fails is done again in a while.
func (m *manager) register(ctx context.Context, due []registration) {
	for len(due) > 0 {
		n := 1 // lists of a power of two, as the names in one must differ
		for 2*n <= min(len(due), pollBatch) {
			n *= 2
		}
		_ = m.store.register(ctx, due[:n])
		due = due[n:]
	}
}

func (s *store) register(ctx context.Context, rows []registration) error {
	d := &s.dialect.Leases
	args := []any{s.self[:], s.holder, waiterLife.Microseconds()}
	texts := make([]string, len(rows))
	for i, r := range rows {
		n := len(args)
		args = append(args, r.name, int64(r.count))
		texts[i] = strings.NewReplacer("{name}", "$"+strconv.Itoa(n+1), "{count}", "$"+strconv.Itoa(n+2)).Replace(d.RegisterRow)
	}
	stmt := s.dialect.Compile("locks.register", s.texts(strings.ReplaceAll(d.Register, "{rows}", strings.Join(texts, ", "))))
	return s.onConn(ctx, "", func(q core.Querier) error {
		_, err := stmt.Exec(ctx, q, args...)
		return err
	})
}

// interval is how often a lock is looked at that was looked at before: less and
// less often, and less often where a bell will be heard, or many wait.
func (m *manager) interval(w *waiter) time.Duration {
	most := maxPoll
	if m.bell.heard() && !w.registered.IsZero() {
		most = m.lazy
	}
	many := time.Duration(m.waits.len()/pollBatch) * pollSpace
	return max(min(2*w.poll, most), many)
}

// rung has the first who waits for a key ask for it.
func (m *manager) rung(name []byte) {
	if len(name) < 2 || kind(name[0]) != kindLease {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.queues[string(name[1:])]
	if q == nil || q.local != nil || len(q.waiters) == 0 {
		return
	}
	q.waiters[0].ask = true
	signal(q.waiters[0].event)
}

// lookSoon has all who wait looked after at once: while nobody listened, a bell
// may have rung.
func (m *manager) lookSoon() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, q := range m.queues {
		if i := slices.IndexFunc(q.waiters, func(w *waiter) bool { return w.watched }); i >= 0 {
			m.waits.set(q.waiters[i], time.Now())
		}
	}
}
