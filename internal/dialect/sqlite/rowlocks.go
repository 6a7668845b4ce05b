package sqlite

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// SQLite has one writer at a time, so a write locks every key and every row. A write fails if
// the snapshot is older than another connection's commit (BUSY_SNAPSHOT).
var rowLocks = dialect.RowLocks{
	Hold: `INSERT INTO {locks} (owner, name, token, attempt, holder, granted_at, expires_at) VALUES ($0, $1, {now}, NULL, '', {now}, {now})
ON CONFLICT (owner, name) DO UPDATE SET token = MAX(token + 1, {now}), granted_at = {now}, expires_at = {now}`,

	NoSession: "it would keep the only writer: use a lease",

	Select: func(time.Duration) string { return `SELECT` },
	Left:   dialect.LeftReads,
	// Take writes to a table of Holdfast, because the caller's tables may have triggers.
	Take: `UPDATE {floor} SET token = token WHERE id = 1`,

	// The wait consists of pauses between the statements. A context does not end SQLite's own
	// wait, and the setting would stay changed if the transaction's context ended during that
	// wait.
	Slice:   time.Millisecond,
	Forever: time.Millisecond,
	// BoundGet is a PRAGMA, because the pragma function in a SELECT would fix the snapshot.
	BoundGet: `PRAGMA busy_timeout`,
	BoundSet: `PRAGMA busy_timeout = {to}`,
	Bound:    func(time.Duration) string { return "0" },

	BoundOutlives: true,
	Begin:         `BEGIN`,
}
