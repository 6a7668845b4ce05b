package fairlock

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

// PollRarely sets the poll interval of calls that have waited long enough to listen.
func (l *Locker[Tx]) PollRarely(d time.Duration) {
	k := l.tickets.k
	k.Mu.Lock()
	l.tickets.rarely = d
	k.Mu.Unlock()
	k.Notifier.Arrival(dbtest.Slack)
	k.Waker.ListenFor(time.Hour)
}

// Hears reports whether a call waits that only a signal of another process wakes, and Wakes
// whether a release of this process gives one.
func (l *Locker[Tx]) Hears() bool {
	k := l.tickets.k
	k.Mu.Lock()
	defer k.Mu.Unlock()
	for _, q := range l.tickets.queues {
		if len(q.waiting) > 0 && q.polls > listenAfter {
			return k.Waker.Hears()
		}
	}
	return false
}
func (l *Locker[Tx]) Wakes() bool { return l.tickets.k.Waker.Works() }

// NamedLock returns the name of the named lock of this process.
func (l *Locker[Tx]) NamedLock() string { return keeper.Named(l.tickets.k.Identity()) }

// SeesOthers reports whether a call waits behind a ticket of another process, and has polled.
func (l *Locker[Tx]) SeesOthers() bool {
	k := l.tickets.k
	k.Mu.Lock()
	defer k.Mu.Unlock()
	for _, q := range l.tickets.queues {
		if len(q.waiting) > 0 && q.others {
			return true
		}
	}
	return false
}

// Listens reports whether a call waits that only a notification wakes.
func (l *Locker[Tx]) Listens() bool {
	k := l.tickets.k
	k.Mu.Lock()
	defer k.Mu.Unlock()
	for _, q := range l.tickets.queues {
		if len(q.waiting) > 0 && q.polls > listenAfter {
			return k.Notifier.Listening()
		}
	}
	return false
}
