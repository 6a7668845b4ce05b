package sqllock

import (
	"bytes"
	"context"
	"errors"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/trace"
)

const (
	// renewPart is the part of the TTL after which a lease is renewed, and that
	// bounds one renewal: a third, so that there is time for a second one.
	renewPart = 3
	// retryPart is the part of it after which a renewal that failed, or found
	// the row locked, is tried again.
	retryPart = 20
	// renewBatch is how many leases a statement renews, and renewAtOnce how
	// many such statements run side by side.
	renewBatch  = 2048
	renewAtOnce = 4
	// renewLess is by how much smaller the next ones are when one took too long:
	// there is time for one more before the leases end.
	renewLess = 8
)

// renewal is the agenda of the leases with about such a TTL; m.mu is held. A
// statement that hangs for a part of a long TTL must not hold up short ones.
func (m *manager) renewal(ttl time.Duration) *agenda[*Lease] {
	size := bits.Len64(uint64(ttl)) //nolint:gosec // it is above zero
	a := m.renewals[size]
	if a == nil {
		a = newAgenda(m.ctx, time.Duration(1)<<size/32, m.renew)
		m.renewals[size] = a
	}
	return a
}

// renew renews leases that are due, in batches, in the order of their names.
func (m *manager) renew(ctx context.Context, due []*Lease) {
	slices.SortFunc(due, func(a, b *Lease) int { return bytes.Compare(a.name, b.name) })
	type kin struct { // what one statement can renew
		ttl   time.Duration
		claim bool
	}
	byKin := map[kin][]*Lease{}
	for _, l := range due {
		k := kin{l.ttl, l.claim != nil}
		byKin[k] = append(byKin[k], l)
	}
	var running sync.WaitGroup
	slots := make(chan struct{}, renewAtOnce)
	for k, leases := range byKin {
		for batch := range slices.Chunk(leases, int(m.renewSize.Load())) {
			slots <- struct{}{}
			running.Go(func() {
				defer func() { <-slots }()
				m.renewBatch(ctx, k.ttl, batch)
			})
		}
	}
	running.Wait()
}

func (m *manager) renewBatch(ctx context.Context, ttl time.Duration, batch []*Lease) {
	ctx, cancel := context.WithTimeout(ctx, ttl/renewPart)
	defer cancel()
	ctx, op := m.mu.trace.Start(ctx, trace.Call{Name: "lease.renew", Lock: batch[0].lock(), Background: true})
	sent := time.Now()
	renewed, err := m.store.renew(ctx, ttl, batch)
	var left map[owner]time.Duration
	var asked time.Time
	if err == nil && len(renewed) < len(batch) {
		asked = time.Now()
		left, err = m.store.remaining(ctx, batch)
	}
	m.resize(ctx, len(batch), err)
	op.Rows = int64(len(renewed))
	op.End(err, nil)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range batch {
		rest, there := left[l.owner]
		switch {
		case !l.live || l.once && l.claim != nil && l.claim.granted:
			continue
		case renewed[l.owner]:
			l.prolong(sent.Add(ttl))
			l.renewError = nil
			m.renewal(ttl).set(l, sent.Add(ttl/renewPart))
			continue
		case err != nil:
			l.renewError = err
		case !there || rest <= 0:
			m.lose(l, trace.CauseTaken, "its row is another's by now, or it was taken away, or it had expired")
			continue
		default: // locked, by a guarded transaction
			l.prolong(asked.Add(rest))
		}
		m.renewal(ttl).set(l, time.Now().Add(jitter(ttl/retryPart)))
	}
}

// resize learns from a batch how many leases the next ones are to renew.
func (m *manager) resize(ctx context.Context, n int, err error) {
	size := m.renewSize.Load()
	switch {
	case err == nil && int64(n) == size:
		m.renewSize.CompareAndSwap(size, min(2*size, renewBatch))
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded):
		if less := max(int64(n)/renewLess, 1); less < size {
			m.renewSize.CompareAndSwap(size, less)
		}
	}
}

// prolong moves the trust window's end, which never comes earlier: expiry is
// when the lease ends at the soonest; m.mu is held and the lease is live.
func (l *Lease) prolong(expiry time.Time) {
	if until := expiry.Add(-l.margin); until.After(l.until) {
		l.until = until // the timer looks again when it fires
	}
}

// renew moves the expiry of terms that are live, and says of which.
func (s *store) renew(ctx context.Context, ttl time.Duration, batch []*Lease) (map[owner]bool, error) {
	names, owners := terms(batch)
	d := &s.dialect.Leases
	text := d.Renew
	if batch[0].claim != nil {
		text = s.dialect.Claims.Renew
	}
	stmt := s.list("renew", text, 2, len(names))
	args := append([]any{ttl.Microseconds()}, append(names, owners...)...)
	renewed := make(map[owner]bool, len(batch))
	if d.Renewed {
		said, _, err := s.owners(ctx, stmt, args...)
		for o := range said {
			renewed[o] = true
		}
		return renewed, err
	}
	return renewed, s.onConn(ctx, d.ManyBefore, func(q core.Querier) error {
		r, err := stmt.Exec(ctx, q, args...)
		if err == nil && r.Affected == int64(len(batch)) { // else it is not known which
			for _, l := range batch {
				renewed[l.owner] = true
			}
		}
		return err
	})
}

// remaining reads how long terms last; those that have ended are not there.
func (s *store) remaining(ctx context.Context, batch []*Lease) (map[owner]time.Duration, error) {
	names, owners := terms(batch)
	left := make(map[owner]time.Duration, len(batch))
	text := s.dialect.Leases.Remaining
	if batch[0].claim != nil {
		text = s.dialect.Claims.Remaining
	}
	stmt := s.list("remaining", text, 1, len(names))
	said, _, err := s.owners(ctx, stmt, append(names, owners...)...)
	for o, n := range said {
		left[o] = micros(n)
	}
	return left, err
}

func terms(batch []*Lease) (names, owners []any) {
	for _, l := range batch {
		names, owners = append(names, l.name), append(owners, l.owner[:])
	}
	return pad(names), pad(owners)
}
