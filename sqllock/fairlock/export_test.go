package fairlock

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// PollRarely sets the poll interval of calls that have waited long enough to listen.
func (l *Locker[Tx]) PollRarely(d time.Duration) {
	l.tickets.rarely = d
	l.tickets.k.Notifier.Arrival(dbtest.Slack)
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
