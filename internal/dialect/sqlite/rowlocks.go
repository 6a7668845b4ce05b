package sqlite

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// There is one writer at a time: the write is the lock, on every key and every
// row. A snapshot that is older than another's commit fails (BUSY_SNAPSHOT).
var rowLocks = dialect.RowLocks{
	Hold: `INSERT INTO {locks} (name, token, owner, holder, granted_at, expires_at) VALUES ($1, {now}, NULL, '', {now}, {now})
ON CONFLICT (name) DO UPDATE SET token = MAX(token + 1, {now}), granted_at = {now}, expires_at = {now}`,

	Select: func(time.Duration) string { return `SELECT` },
	Left:   dialect.LeftReads,
	// A table of the caller's own may have triggers.
	Take: `UPDATE {floor} SET token = token WHERE id = 1`,

	// The pauses between the statements are the wait. No context ends a wait of
	// SQLite's own, and one whose transaction's context ends meanwhile would leave
	// the setting behind.
	Slice:   time.Millisecond,
	Forever: time.Millisecond,
	// As a function in a SELECT it would fix the snapshot.
	BoundGet: `PRAGMA busy_timeout`,
	BoundSet: `PRAGMA busy_timeout = {to}`,
	Bound:    func(time.Duration) string { return "0" },

	BoundOutlives: true,
	Begin:         `BEGIN`,
}
