package rowlock

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/dialect/rowwait"
	"github.com/holdfast-go/holdfast/internal/options"
)

const maxWait = 24 * time.Hour

// Wait says how long a call waits for a lock. It replaces the transaction's own lock
// timeout for the call. The zero value is WaitForever.
type Wait struct {
	mode rowwait.Mode
	most time.Duration
}

var (
	// WaitForever waits until the context ends. The server stops waiting then: at once
	// on PostgreSQL and SQLite, within half a second on MySQL and MariaDB. Until it has
	// learned of it, a call that does not wait, such as NextTx, finds the rows of the
	// transaction locked: it may pass over one that the program thinks free.
	WaitForever = Wait{}

	// NoWait returns ErrLockNotAvailable if another transaction holds the lock.
	NoWait = Wait{mode: rowwait.No}

	// SkipLocked leaves out the rows that other transactions have locked. For a key it
	// is NoWait.
	SkipLocked = Wait{mode: rowwait.Skip}
)

// WaitUpTo waits for d, which is 0 or 1 ms to 24 h, and then returns ErrTimeout. It rounds d up to
// milliseconds, on MySQL and MariaDB to at least 20 ms. It bounds the whole call, as
// the context does.
func WaitUpTo(d time.Duration) Wait { return Wait{mode: rowwait.UpTo, most: d} }

func (w Wait) check() error {
	return options.Wait.Or("no wait").UpTo(maxWait).Check("WaitUpTo", w.most)
}
