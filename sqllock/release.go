package sqllock

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect/lockstmt"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

// Release ends a lease and hands the lock over to the next waiter of this process,
// or frees it.
func (m *leases) Release(ctx context.Context, l *keeper.Lease) error {
	var f keeper.Freed
	var err error
	if next := m.finish(l); next != nil {
		f = m.handOver(ctx, l, next)
	}
	passed := f.Was
	if !passed {
		handed := f.Ambiguous
		free := m.statements.free
		if l.Attempt().HandedOut { // a batch takes a free row with its token for its own work
			free = m.statements.freeAlone
		}
		f, err = free(ctx, freeing{*l.Attempt(), l.Token()})
		f.Ambiguous = f.Ambiguous || handed
		if err == nil {
			f = m.k.Confirm(ctx, l, f)
		}
	}
	if err != nil || l.Attempt().Ambiguous {
		m.k.Abandon(m, *l.Attempt())
	}
	if f.Notify {
		m.k.Notifier.Notify(l.Attempt().Name)
	}
	if !passed {
		m.k.Waker.Freed(l.Attempt().Name)
	}
	m.k.Mu.Lock()
	defer m.k.Mu.Unlock()
	if !passed {
		if q := m.queues[l.Attempt().Name]; q != nil && f.Alone {
			q.turns.alone()
		}
		m.wake(l.Attempt().Name)
	}
	return m.k.Result(l, f, err)
}

// finish ends the context of a released lease, and returns the waiter to hand the lock over to.
// An attempt that was sent twice is not handed over: it may have been granted twice, and the
// row may belong to the second term.
func (m *leases) finish(l *keeper.Lease) (next *waiter) {
	m.k.Mu.Lock()
	defer m.k.Mu.Unlock()
	if !m.k.Finish(l) || m.k.Closed || l.Attempt().Ambiguous {
		return nil
	}
	if next = m.next(m.queues[l.Attempt().Name]); next != nil {
		m.k.Pending.Add(1)
	}
	return next
}

// handOver hands the lock over to the first waiter, in one statement. Ambiguous is set in the
// result when an answer was lost.
func (m *leases) handOver(ctx context.Context, l *keeper.Lease, w *waiter) keeper.Freed {
	defer m.k.Pending.Add(-1)
	a := lockstmt.NewAttempt(w.q.name, m.k.NewAttemptID(), w.TTL)
	sent := time.Now()
	v, ambiguous, err := m.statements.handOver(ctx, l.Attempt().ID, a)
	var lease *keeper.Lease
	passed := err == nil && v.Won
	switch {
	case passed:
		lease, _ = m.begin(a, w.Settings, v.Token, sent, false)
	case ambiguous:
		m.k.Abandon(m, a)
	}
	m.k.Mu.Lock()
	w.passing = false
	gone := w.gone
	if !gone {
		w.lease = lease
		signal(w.event)
	}
	if lease == nil {
		m.wake(w.q.name)
	}
	m.k.Mu.Unlock()
	if gone && lease != nil {
		_ = lease.Release(ctx) // to the next waiter
	}
	return keeper.Freed{Was: passed, Ambiguous: ambiguous}
}

// Sweep releases abandoned attempts.
func (m *leases) Sweep(ctx context.Context, due []keeper.Abandoned) {
	for _, a := range due {
		c, cancel := context.WithTimeout(ctx, core.CleanupBound())
		f, err := m.statements.free(c, freeing{attempt: keeper.Attempt{Name: a.Name, ID: a.ID}})
		cancel()
		if f.Notify {
			m.k.Notifier.Notify(a.Name)
		}
		m.k.Waker.Freed(a.Name)
		m.k.Swept(a, err == nil && f.Was)
	}
}

// freeing identifies a term to end.
type freeing struct {
	attempt keeper.Attempt
	token   int64
}

// free ends the term of a lease.
func (s *statements) free(ctx context.Context, t freeing) (keeper.Freed, error) {
	f, err := s.ending.Ask(ctx, t, func() (keeper.Freed, error) { return s.freeAlone(ctx, t) })
	if err != nil || f.Was || !f.Ambiguous {
		return f, err
	}
	f, err = s.freeAlone(ctx, t)
	f.Ambiguous = true
	return f, err
}

func (s *statements) freeAlone(ctx context.Context, t freeing) (keeper.Freed, error) {
	var f keeper.Freed
	err := s.Retry(ctx, func(q core.Querier) (err error) {
		ambiguous := f.Ambiguous
		f, err = s.sql.Release.Run(ctx, q, t.attempt)
		f.Ambiguous = ambiguous || s.MayStand(err)
		return err
	})
	return f, err
}
