package sqlite

import (
	"database/sql"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

var records = dialect.Records{
	Look: dialect.Look,
	Lock: dialect.Look, // the claim already holds the only write lock

	Claim: `INSERT INTO {records} (owner, key_hash, namespace, operation, op_key, fingerprint, fingerprint_version, attempt, state, created_at)
VALUES ($0, $1, $2, $3, $4, $5, $6, $7, 1, {now})
ON CONFLICT (owner, key_hash) DO NOTHING`,
	Verdict: dialect.ByAffected,
	Bound:   busyTimeout,

	Renew: `DELETE FROM {records} WHERE owner = $0 AND key_hash = $1 AND key_expires_at <= {now}`,
	Finish: `UPDATE {records} SET state = $3, result = $4, codec = $7, business_id = $8, finished_at = {now},
 result_expires_at = {now} + $5, key_expires_at = {now} + $6,
 holder = $9, program = $10, request_id = $11
WHERE owner = $0 AND key_hash = $1 AND attempt = $2 AND state = 1`,

	// A write takes the only write lock before it reads, even if it then finds no row to write.
	Reserve:     `UPDATE {records} SET state = state WHERE owner = $0 AND key_hash = $1`,
	Reserved:    dialect.ByUnaffected,
	ReserveUpTo: sql.LevelLinearizable,
	Record: `INSERT INTO {records} (owner, key_hash, namespace, operation, op_key, fingerprint, fingerprint_version, attempt,
 state, result, codec, business_id, created_at, finished_at, result_expires_at, key_expires_at,
 holder, program, request_id)
VALUES ($0, $1, $12, $13, $14, $15, $16, $2, $3, $4, $7, $8, {now} - $17, {now}, {now} + $5, {now} + $6, $9, $10, $11)
ON CONFLICT (owner, key_hash) DO NOTHING`,
}
