package sqllock

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

// PollEvery sets how often a lock is polled while its notifications are received.
func (l *Locker[Tx]) PollEvery(d time.Duration) {
	l.leases.lazy = d
	l.leases.k.Notifier.Arrival(dbtest.Slack)
}

// WatchEvery sets how often a watch reads without being woken.
func (l *Locker[Tx]) WatchEvery(d time.Duration) { l.leases.k.WatchEvery(d) }

// Listening reports whether a notification that is sent now would be received.
func (l *Locker[Tx]) Listening() bool { return l.leases.k.Notifier.Listening() }

// LooksLater delays the looks for rivals, which would be counted with a call's statements.
func (l *Locker[Tx]) LooksLater() { l.leases.least = time.Hour }

// OnlyWoken makes polls of a lock that another process holds ever rarer, so that the process is
// woken before it polls.
func (l *Locker[Tx]) OnlyWoken() {
	l.leases.most = time.Hour
	l.leases.k.Waker.ListenFor(time.Hour)
}

// Wakes reports whether a release of this process wakes other processes, and Hears whether this
// process is woken.
func (l *Locker[Tx]) Wakes() bool { return l.leases.k.Waker.Works() }
func (l *Locker[Tx]) Hears() bool { return l.leases.k.Waker.Hears() }

// NamedLock returns the name of the named lock of this process.
func (l *Locker[Tx]) NamedLock() string { return keeper.Named(l.leases.k.Identity()) }

// Session returns the id of the session of this process, and "" if there is none. SessionNumber is
// the server's number of it.
func (l *Locker[Tx]) Session() string      { return l.leases.k.Liveness.ID() }
func (l *Locker[Tx]) SessionNumber() int64 { return l.leases.k.Liveness.Number() }

// Waiting returns how many calls wait in the queues of this process.
func (l *Locker[Tx]) Waiting() int { return l.leases.k.Waiting() }

// CanWake reports whether the engine and the pool can wake processes.
func (l *Locker[Tx]) CanWake() bool { return l.leases.k.Waker.Able() }

// Gathering returns how many requests wait for a running statement, and how many at most do not.
func (l *Locker[Tx]) Gathering() (waiting, alone int) {
	s := l.leases.statements
	return max(s.taking.Queued(), s.ending.Queued()), max(s.taking.From, s.taking.Spread)
}

// GatherFor sets for how long a running statement makes other requests wait, and gather. On a busy
// machine a statement takes longer than the default.
func (l *Locker[Tx]) GatherFor(life time.Duration) {
	l.leases.statements.taking.Life, l.leases.statements.ending.Life = life, life
}
