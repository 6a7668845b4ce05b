package postgres

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

const changeToken = `token = GREATEST(l.token + 1, {now}), granted_at = {now}, expires_at = {now}`

// An insert takes no gap locks here, so the caller's transaction makes the key's row
// itself. The engine refuses an old snapshot (40001).
var rowLocks = dialect.RowLocks{
	// The statement sets its bound and restores the setting.
	Hold: `WITH bound AS MATERIALIZED (
 SELECT current_setting('lock_timeout') AS was, set_config('lock_timeout', $2::text, true) AS is_now
), held AS (
 INSERT INTO {locks} AS l (owner, name, token, attempt, holder, granted_at, expires_at)
 SELECT $0::text, $1::bytea, {now}, NULL, '', {now}, {now} FROM bound WHERE is_now IS NOT NULL
 ON CONFLICT (owner, name) DO UPDATE SET ` + changeToken + ` RETURNING 1
), total AS MATERIALIZED (SELECT count(*) AS n FROM held)
SELECT n, set_config('lock_timeout', was, true) FROM total, bound`,
	HoldBounds: true,
	// NOWAIT would abort the transaction.
	TryHold: `WITH free AS MATERIALIZED (SELECT name FROM {locks} WHERE owner = $0 AND name = $1::bytea FOR UPDATE SKIP LOCKED
), moved AS (UPDATE {locks} l SET ` + changeToken + ` FROM free f WHERE l.owner = $0 AND l.name = f.name RETURNING 1)
SELECT (SELECT count(*) FROM moved), (SELECT count(*) FROM {locks} WHERE owner = $0 AND name = $1::bytea)`,

	Select:    func(time.Duration) string { return `SELECT` },
	Clause:    ` FOR NO KEY UPDATE`, // inserts that refer to the row go on
	TryClause: ` FOR NO KEY UPDATE SKIP LOCKED`,
	Left:      dialect.LeftReads,

	BoundGet: `SELECT pg_catalog.current_setting('lock_timeout')`,
	BoundSet: `SELECT pg_catalog.set_config('lock_timeout', '{to}', true)`,
	Bound: func(d time.Duration) string {
		if d == 0 {
			return "0"
		}
		return dialect.Millis(d) + "ms"
	},
	Savepoint: true,
}
