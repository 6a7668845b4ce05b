package sqllock

import "time"

// LookEvery sets how often is looked where a bell is heard.
func (l *Locker[Tx]) LookEvery(d time.Duration) { l.leases.lazy = d }

// Hears is whether a bell that rings now is heard.
func (l *Locker[Tx]) Hears() bool { return l.leases.bell.heard() }
