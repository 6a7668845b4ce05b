package mysql

import (
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

var rowLocks = dialect.RowLocks{
	Make: `INSERT INTO {locks} (owner, name, token, attempt, holder, granted_at, expires_at)
VALUES ($0, $1, {now}, NULL, '', 0, {now}) ON DUPLICATE KEY UPDATE name = name`,
	// No optimizer hint bounds an insert.
	MakeBound: dialect.Setting{
		Before: func(d time.Duration) string { return LockWait("@holdfast_row_wait", max(d, time.Second)) },
		After:  `SET SESSION innodb_lock_wait_timeout = @holdfast_row_wait`,
	},

	// Find is a separate statement. As a part of Lock, it would fix the snapshot on MariaDB
	// even if the row is skipped, and would be NULL when the statement is interrupted.
	Lock: ` token, granted_at FROM {locks} WHERE owner = $0 AND name = $1`,
	Find: `SELECT token FROM {locks} WHERE owner = $0 AND name = $1`,
	Move: `UPDATE {locks} SET token = GREATEST(token + 1, {now}), granted_at = {now}, expires_at = {now} WHERE owner = $0 AND name = $1`,

	// The hint ends only the statement, for any value of innodb_rollback_on_timeout. It is
	// exact to the millisecond and leaves no setting behind.
	Select: func(bound time.Duration) string {
		return `SELECT /*+ MAX_EXECUTION_TIME(` + dialect.Millis(bound) + `) */`
	},
	Clause:    ` FOR UPDATE`,
	TryClause: ` FOR UPDATE NOWAIT`,
	Left:      dialect.LeftFails,
	// At REPEATABLE READ, a scan keeps its locks on rows that do not match, on rows that it
	// sorts, and on gaps. Inserts and updates of other workers need these.
	ByKey: func(index string) string { return " FORCE INDEX (`" + strings.ReplaceAll(index, "`", "``") + "`)" },

	// The server keeps waiting for a client that has disconnected, so each statement is short.
	// The minimum of innodb_lock_wait_timeout is one second. The slice must be shorter than
	// that.
	Slice:   500 * time.Millisecond,
	Forever: 500 * time.Millisecond,
	Least:   20 * time.Millisecond,
}
