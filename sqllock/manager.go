package sqllock

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// manager keeps the leases of one process.
type manager struct {
	store   *store
	options Options
	ctx     context.Context // of the work in the background
	stop    context.CancelFunc

	waits    *agenda[*waiter]
	forsaken *agenda[forsaken]
	lines    *lines
	bell     *bell
	lazy     time.Duration // lazyPoll, but in tests
	flights  atomic.Int64  // what may yet be granted, or is to be taken back
	// asking holds a token for each call in line that asks the database.
	asking chan struct{}
	// renewSize is how many leases a statement is to renew.
	renewSize atomic.Int64

	mu       mutex
	closed   bool
	queues   map[string]*queue
	held     map[*Lease]struct{}
	renewals map[int]*agenda[*Lease] // by the size of the TTL
}

func newManager(s *store, o Options, t *trace.Tracer, listen func(context.Context, string, func(), func(string)) error) *manager {
	m := &manager{
		store: s, options: o, lazy: lazyPoll,
		queues: map[string]*queue{}, held: map[*Lease]struct{}{}, renewals: map[int]*agenda[*Lease]{},
	}
	m.mu.trace = t
	m.asking = make(chan struct{}, askAtOnce)
	m.renewSize.Store(renewBatch)
	m.ctx, m.stop = context.WithCancel(context.Background())
	m.waits = newAgenda(m.ctx, pollSlack, m.poll)
	m.waits.crowded = pollSpace
	m.forsaken = newAgenda(m.ctx, 0, m.sweep)
	m.lines = newLines(m)
	m.bell = newBell(m, listen)
	return m
}

// begin makes the lease of an attempt that was granted, or forsakes a grant
// whose trust window is over already. sent is when the attempt was begun.
func (m *manager) begin(key string, a attempt, s settings, token int64, sent time.Time) (*Lease, error) {
	l := &Lease{
		m: m, attempt: a, margin: s.margin, once: s.once, by: s.by, live: true, until: sent.Add(s.ttl - s.margin),
		term: Term{kind: kindLease, key: key, token: token, store: m.store.id},
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	window := time.Until(l.until)
	if m.closed || window <= 0 {
		m.forsake(a)
		if m.closed {
			return nil, ErrClosed
		}
		return nil, nil
	}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(s.values))
	m.held[l] = struct{}{}
	m.granted(l, sent)
	q := m.queue(key)
	q.local = l
	q.share()
	l.timer = time.AfterFunc(window, l.expire)
	if !s.once {
		m.renewal(s.ttl).set(l, sent.Add(s.ttl/renewPart))
	}
	return l, nil
}

// expire ends the lease when its trust window has ended.
func (l *Lease) expire() {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if rest := time.Until(l.until); rest > 0 { // it was renewed meanwhile
		l.timer.Reset(rest)
		return
	}
	l.m.lose(l, trace.CauseExpired, "its time was over before a renewal was committed")
}

// lose ends a lease that is lost; m.mu is held.
func (m *manager) lose(l *Lease, cause, reason string) {
	if !m.end(l, l.lost(reason)) {
		return
	}
	m.wasLost(l, cause)
	if l.claim == nil {
		m.wake(l.term.key)
	}
}

// end ends the lease's context; m.mu is held. false when it had ended.
func (m *manager) end(l *Lease, cause error) bool {
	if !l.live {
		return false
	}
	l.live = false
	l.timer.Stop()
	delete(m.held, l)
	m.renewal(l.ttl).drop(l)
	l.cancel(cause)
	m.ended(l, cause)
	if l.claim != nil {
		m.lines.left(l)
		return true
	}
	if q := m.queues[l.term.key]; q != nil && q.local == l {
		q.local = nil
	}
	return true
}

// Close ends all leases and waits for what runs in the background. Leases that
// are held are released: end what they protect first. Waiting calls of Acquire
// return ErrClosed. It is bounded by ctx and holdfast.CleanupTimeout; what is
// not released by then ends with its TTL.
func (l *Locker[Tx]) Close(ctx context.Context) error { return l.leases.close(ctx) }

func (m *manager) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, holdfast.CleanupTimeout)
	defer cancel()
	m.mu.Lock()
	m.closed = true
	var held []*Lease
	for l := range m.held {
		held = append(held, l)
		m.end(l, ErrClosed)
	}
	for _, q := range m.queues {
		for _, w := range q.waiters {
			signal(w.event)
		}
	}
	m.lines.close()
	m.mu.Unlock()
	m.lines.wait(ctx)
	held = slices.DeleteFunc(held, func(l *Lease) bool { return l.claim != nil && !l.claim.granted })
	var first error
	for _, l := range held {
		if err := l.Release(ctx); err != nil && first == nil {
			first = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	for m.flights.Load() > 0 && ctx.Err() == nil {
		time.Sleep(minPoll)
	}
	m.stop()
	m.store.wait()
	m.waits.wait()
	m.lines.looks.wait()
	m.forsaken.wait()
	m.bell.wait()
	for _, r := range m.renewals { // there are no new ones any more
		r.wait()
	}
	return first
}
