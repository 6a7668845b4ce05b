package sqllock

import "time"

// PollEvery sets how often a lock is polled while its notifications are received.
func (l *Locker[Tx]) PollEvery(d time.Duration) { l.leases.lazy = d }

// Listening reports whether a notification that is sent now would be received.
func (l *Locker[Tx]) Listening() bool { return l.leases.notifier.listening() }
