package mysql

import (
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

var lost = strconv.Itoa(dialect.Lost)

var records = dialect.Records{
	Look: dialect.Look,
	// A plain read at REPEATABLE READ would use a snapshot that may be older than the row.
	Lock: dialect.Look + ` FOR UPDATE`,

	// ON DUPLICATE KEY UPDATE takes the exclusive lock at once. INSERT and INSERT IGNORE take
	// a shared lock, which deadlocks later. INSERT IGNORE also truncates values. The insert id
	// depends on the row that exists: of a constant, the server may set it beforehand, for a
	// row that is inserted too (TiDB does).
	Claim: `INSERT INTO {records} (owner, key_hash, namespace, operation, op_key, fingerprint, fingerprint_version, attempt, state, created_at)
VALUES ($0, $1, $2, $3, $4, $5, $6, $7, 1, {now})
ON DUPLICATE KEY UPDATE state = IF(LAST_INSERT_ID(` + lost + ` + 0 * state) = 0, state, state)`,
	Verdict: dialect.ByInsertID,

	// The setting applies to the next statement only, so it needs no restoring.
	PeekBefore: `SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED`,
	Bound: dialect.Setting{
		Before: func(d time.Duration) string { return LockWait("@holdfast_claim_wait", max(d, time.Second)) },
		After:  `SET SESSION innodb_lock_wait_timeout = @holdfast_claim_wait`,
	},

	WaitEnds: `SELECT @@innodb_rollback_on_timeout`,

	Renew: `DELETE FROM {records} WHERE owner = $0 AND key_hash = $1 AND key_expires_at <= {now}`,
	Finish: `UPDATE {records} SET state = $3, result = $4, codec = $7, business_id = $8, finished_at = {now},
 result_expires_at = {now} + $5, key_expires_at = {now} + $6,
 holder = $9, program = $10, request_id = $11
WHERE owner = $0 AND key_hash = $1 AND attempt = $2 AND state = 1`,
}

// LockWait returns a statement that saves the session's lock wait timeout in a user variable
// and sets it to d, rounded up to whole seconds. A claim may run inside a fenced transaction,
// so each of the two uses its own variable.
func LockWait(variable string, d time.Duration) string {
	seconds := int64((d + time.Second - 1) / time.Second)
	return `SET ` + variable + ` = @@SESSION.innodb_lock_wait_timeout, SESSION innodb_lock_wait_timeout = ` +
		strconv.FormatInt(seconds, 10)
}
