package rowlock

import "time"

// SetPoolWait sets how long l waits for a connection of the pool. On a busy machine that may take
// longer than core.PoolWait although connections are free.
func (l *Locker[Tx]) SetPoolWait(d time.Duration) { l.waits.PoolWait = d }
