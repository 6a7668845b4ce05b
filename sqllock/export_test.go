package sqllock

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// PollEvery sets how often a lock is polled while its notifications are received.
func (l *Locker[Tx]) PollEvery(d time.Duration) {
	l.leases.lazy = d
	l.leases.k.Notifier.Arrival(dbtest.Slack)
}

// Listening reports whether a notification that is sent now would be received.
func (l *Locker[Tx]) Listening() bool { return l.leases.k.Notifier.Listening() }

// Gathering returns how many requests wait for a running statement, and how many at most do not.
func (l *Locker[Tx]) Gathering() (waiting, alone int) {
	s := l.leases.store
	return max(s.taking.Queued(), s.ending.Queued()), max(s.taking.From, s.ending.From)
}

// GatherFor sets for how long a running statement makes other requests wait, and gather. On a busy
// machine a statement takes longer than the default.
func (l *Locker[Tx]) GatherFor(life time.Duration) {
	l.leases.store.taking.Life, l.leases.store.ending.Life = life, life
}
