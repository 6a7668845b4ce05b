package sqllock

// Owner is on whose behalf locks are acquired that may be acquired again.
type Owner struct{ _ byte } // of a size, so that no two have one address

// NewOwner makes an owner, for instance one a request. It is for one Locker.
func NewOwner() *Owner { return new(Owner) }

// WithOwner makes the lock re-entrant: a call with the same owner for a key
// whose lease the owner has gets that very lease, whose TTL and renewal stay as
// they are, and which ends when it was released as often as it was acquired.
// Without it, a call for a key that its own goroutine holds waits for itself.
func WithOwner(o *Owner) Option {
	return func(s *settings) {
		if s.by = o; o == nil {
			s.err = invalid("WithOwner", "is nil: make one with NewOwner")
		}
	}
}

// again gives a lease to its owner once more, nil when it is another's or none;
// m.mu is held.
func (q *queue) again(o *Owner) *Lease {
	if q == nil || o == nil || q.local == nil || q.local.by != o {
		return nil
	}
	q.local.again++
	return q.local
}

// share gives a lease that was just granted to those of its owner's calls which
// wait for it; m.mu is held.
func (q *queue) share() {
	for _, w := range q.waiters {
		if w.lease == nil && !w.asking && !w.passing {
			if w.lease = q.again(w.by); w.lease != nil {
				signal(w.event)
			}
		}
	}
}

// leaves says of a release that the lease was acquired more often.
func (m *manager) leaves(l *Lease) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.again == 0 {
		return false
	}
	l.again--
	return true
}
