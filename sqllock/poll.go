package sqllock

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
)

// How often a lock that another process has is looked at: soon at first, then
// less often. One goroutine looks for all that wait, with one statement for
// many keys, and no connection is held in between.
const (
	minPoll   = 2 * time.Millisecond
	maxPoll   = 50 * time.Millisecond
	lazyPoll  = time.Second // where a release wakes this process
	pollSlack = minPoll
	pollBatch = 256
	// pollSpace is the time for each such statement, where many locks wait: a
	// process looks no more often than a hundred times a second.
	pollSpace = 10 * time.Millisecond
)

// watch has the poller look at what w waits for; m.mu is held. left is how long
// the lock is held at most, unless it is renewed; 0 is a lock that has expired
// and cannot be had, as while a guarded transaction goes on, and then w asks
// less and less often.
func (m *manager) watch(w *waiter, left time.Duration) {
	if w.poll = m.interval(w); left > 0 || !w.watched {
		w.poll = minPoll
	}
	w.watched = true
	m.waits.set(w, time.Now().Add(jitter(soonest(w.poll, left))))
}

// soonest is the poll's interval, or the lock's expiry where that comes first.
func soonest(interval, left time.Duration) time.Duration {
	if left > 0 {
		return min(interval, left)
	}
	return interval
}

// jitter spreads what several processes do, by a quarter.
func jitter(d time.Duration) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d)/4+1))
}

// poll looks at the locks of waiters and wakes those whose lock is free.
func (m *manager) poll(ctx context.Context, due []*waiter) {
	for batch := range slices.Chunk(due, pollBatch) {
		left, err := m.look(ctx, batch)
		m.mu.Lock()
		for _, w := range batch {
			switch d, held := left[string(w.name)]; {
			case w.gone || w.asking || w.passing || w.q.local != nil:
			case !held || d == 0 || err != nil:
				w.ask = true // and gets the error, if it lasts
				signal(w.event)
			default:
				w.poll = m.interval(w)
				m.waits.set(w, time.Now().Add(jitter(soonest(w.poll, d))))
			}
		}
		unknown := m.unregistered(batch, time.Now())
		m.mu.Unlock()
		if len(unknown) > 0 {
			m.bell.need()
			m.register(ctx, unknown)
		}
	}
}

// look reads for how long each lock is held; a lock that is not there is free.
func (m *manager) look(ctx context.Context, batch []*waiter) (map[string]time.Duration, error) {
	names := make([][]byte, len(batch))
	for i, w := range batch {
		names[i] = w.name
	}
	names = pad(names)
	stmt := m.store.list("waits", m.store.dialect.Leases.Waits, 1, len(names))
	left := make(map[string]time.Duration, len(batch))
	err := m.store.rows(ctx, stmt, func(name []byte, n int64) { left[string(name)] = micros(n) }, anys(names)...)
	return left, err
}

// rows runs a read that returns bytes and a number.
func (s *store) rows(ctx context.Context, stmt core.Stmt, tell func(b []byte, n int64), args ...any) error {
	return s.onConn(ctx, "", func(q core.Querier) error { return rowsOn(ctx, q, stmt, tell, args...) })
}

func rowsOn(ctx context.Context, q core.Querier, stmt core.Stmt, tell func(b []byte, n int64), args ...any) error {
	rows, err := stmt.Query(ctx, q, args...)
	return each(rows, err, func() error {
		var b []byte
		var n int64
		if err := rows.Scan(&b, &n); err != nil {
			return err
		}
		tell(b, n)
		return nil
	})
}

// owners runs a statement that says a number of each of several owners. Rows that
// came before an error count for nothing: the statement may not have been
// committed. doubt is whether a run of it may yet be carried out.
func (s *store) owners(ctx context.Context, stmt core.Stmt, args ...any) (said map[owner]int64, doubt bool, err error) {
	err = s.onConn(ctx, "", s.doubting(&doubt, func(q core.Querier) (err error) {
		said, err = ownersOn(ctx, q, stmt, args...)
		return err
	}))
	if err != nil {
		said = nil
	}
	return said, doubt, err
}

func ownersOn(ctx context.Context, q core.Querier, stmt core.Stmt, args ...any) (said map[owner]int64, err error) {
	said = map[owner]int64{}
	return said, rowsOn(ctx, q, stmt, func(b []byte, n int64) {
		if len(b) == len(owner{}) {
			said[owner(b)] = n
		}
	}, args...)
}

// doubting runs f, and sets doubt where it failed and may yet be carried out.
func (s *store) doubting(doubt *bool, f func(q core.Querier) error) func(q core.Querier) error {
	return func(q core.Querier) error {
		err := f(q)
		*doubt = *doubt || err != nil && !s.dialect.RolledBack(err)
		return err
	}
}

func anys[T any](list []T) []any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = v
	}
	return out
}
