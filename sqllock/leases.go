package sqllock

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/internal/trace"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
	"github.com/holdfast-go/holdfast/sqllock/internal/schedule"
)

// leases holds the lease locks of one process: the waiters of each key.
type leases struct {
	k          *keeper.Keeper
	statements *statements

	waits *schedule.Schedule[*waiter]
	// A write waits for other writers, and polls do not wait for it.
	unannounced *schedule.Schedule[*waiter]
	rivals      *schedule.Schedule[*queue]
	lazy        time.Duration // lazyPoll, except in tests
	most        time.Duration // the longest poll interval without notifications
	least       time.Duration // in tests: the shortest pause before a look for rivals
	// asking holds a token for each waiting call that asks the database.
	asking chan struct{}

	queues map[lockname.Name]*queue // under the keeper's Mu
}

func newLeases(k *keeper.Keeper) *leases {
	m := &leases{k: k, statements: newStatements(k.Statements), lazy: lazyPoll, most: maxPoll, queues: map[lockname.Name]*queue{}, asking: make(chan struct{}, askAtOnce)}
	m.waits = schedule.New(k.Ctx, pollSlack, m.poll)
	m.waits.Crowd(pollBatch, pollSpace)
	if most := m.statements.Dialect.Leases.PollMost; most > 0 {
		m.most = most
	}
	m.unannounced = schedule.New(k.Ctx, pollSlack, m.writeAnnouncements)
	m.rivals = schedule.New(m.k.Ctx, pollSlack, m.findRivals)
	return m
}

// begin creates the lease of a granted attempt, which was sent at sent. It abandons a grant
// whose trust window is already over. turn: a turn of this process begins with it.
func (m *leases) begin(a keeper.Attempt, s keeper.Settings, token int64, sent time.Time, turn bool) (*keeper.Lease, error) {
	l := m.k.NewLease(m, token, trace.LockLease, a, s, sent)
	m.k.Mu.Lock()
	defer m.k.Mu.Unlock()
	if !m.k.Keep(l) {
		if m.k.Closed {
			return nil, ErrClosed
		}
		return nil, nil
	}
	q := m.queue(a.Name)
	q.local, q.turns.token = l, token
	if turn {
		q.turns.begin(sent)
	}
	if m.k.Waker.Able() && len(q.waiters) <= 1 && len(m.queues) <= pollBatch { // only its own call waits
		q.turns.look = firstLook
		m.lookIn(q, firstLook)
	}
	q.share()
	return l, nil
}

// Renew and Remaining run the statements of leases.
func (m *leases) Renew(ctx context.Context, ttl time.Duration, batch []*keeper.Lease) (map[keeper.AttemptID]bool, error) {
	return m.statements.Renew(ctx, m.statements.sql.Renew, ttl, batch)
}

func (m *leases) Remaining(ctx context.Context, batch []*keeper.Lease) (map[keeper.AttemptID]time.Duration, error) {
	return m.statements.Remaining(ctx, m.statements.sql.Remaining, batch)
}

// WaitsHere reports whether a call of this process waits for the lock of a lease.
func (m *leases) WaitsHere(l *keeper.Lease) bool {
	q := m.queues[l.Attempt().Name]
	return q != nil && q.local == l && slices.ContainsFunc(q.waiters, func(w *waiter) bool { return w.lease == nil && !w.passing })
}

// Waited returns the locks for which other processes have announced, since the present term began, that they wait.
func (m *leases) Waited(ctx context.Context, names []lockname.Name) (waited map[lockname.Name]bool, err error) {
	err = m.statements.OnConn(ctx, func(q core.Querier) error {
		waited, err = m.statements.sql.Waited.Run(ctx, q, names, m.statements.Self)
		return err
	})
	return waited, err
}

// Ended forgets a lease. After a lost lease the next waiter queries the database at once. After
// a release, the release itself hands over the lock.
func (m *leases) Ended(l *keeper.Lease, lost bool) {
	if q := m.queues[l.Attempt().Name]; q != nil && q.local == l {
		q.local = nil
	}
	if lost {
		m.wake(l.Attempt().Name)
	}
}

// Close ends the waiting of all calls.
func (m *leases) Close() {
	for _, q := range m.queues {
		for _, w := range q.waiters {
			signal(w.event)
		}
	}
}

// Wait does nothing: the keeper counts the attempts that may still be granted.
func (m *leases) Wait(context.Context) {}

// Stop waits for the goroutines.
func (m *leases) Stop() {
	m.statements.wait()
	m.waits.Wait()
	m.unannounced.Wait()
	m.rivals.Wait()
}

// signal sends to a channel of capacity one, unless it is full.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
