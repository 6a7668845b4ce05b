package mysql

import (
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

var rowLocks = dialect.RowLocks{
	Make: `INSERT INTO {locks} (name, token, owner, holder, granted_at, expires_at)
VALUES ($1, {now}, NULL, '', 0, {now}) ON DUPLICATE KEY UPDATE name = name`,
	// No hint bounds an insert.
	MakeBound: dialect.Setting{
		Before: func(d time.Duration) string { return LockWait("@holdfast_row_wait", max(d, time.Second)) },
		After:  `SET SESSION innodb_lock_wait_timeout = @holdfast_row_wait`,
	},

	// Find is a statement of its own: within Lock, MariaDB fixes the snapshot by
	// it although the row is skipped, and takes an interrupted one for NULL.
	Lock: ` token, granted_at FROM {locks} WHERE name = $1`,
	Find: `SELECT token FROM {locks} WHERE name = $1`,
	Move: `UPDATE {locks} SET token = GREATEST(token + 1, {now}), granted_at = {now}, expires_at = {now} WHERE name = $1`,

	// It ends the statement alone, whatever innodb_rollback_on_timeout says, is
	// exact to the millisecond and leaves no setting behind.
	Select: func(bound time.Duration) string {
		return `SELECT /*+ MAX_EXECUTION_TIME(` + dialect.Millis(bound) + `) */`
	},
	Clause:    ` FOR UPDATE`,
	TryClause: ` FOR UPDATE NOWAIT`,
	Left:      dialect.LeftFails,
	// At REPEATABLE READ a scan keeps the locks on rows that do not match, on what
	// it sorts, and on the gaps, which other workers' inserts and updates need.
	ByKey: func(index string) string { return " FORCE INDEX (`" + strings.ReplaceAll(index, "`", "``") + "`)" },
	Lockable: `SELECT COALESCE(engine, '') = 'InnoDB', COALESCE(engine, table_type) FROM information_schema.tables
WHERE table_schema = COALESCE(NULLIF($1, ''), DATABASE()) AND table_name = $2`,

	// The server waits on for a client that is gone. The shortest
	// innodb_lock_wait_timeout is a second, and is not to come first.
	Slice:   500 * time.Millisecond,
	Forever: 500 * time.Millisecond,
	Least:   20 * time.Millisecond,
}
