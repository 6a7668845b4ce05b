package postgres

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

var records = dialect.Records{
	Look: dialect.Look,
	// The lost claim has waited for the winner's commit. So at READ COMMITTED a new statement
	// sees the row without locking it.
	Lock: dialect.Look,

	// lock_timeout bounds the wait for another session's uncommitted row. The statement sets
	// it and restores it: set_config is volatile, and each step reads the result of the
	// previous one.
	Claim: `WITH bound AS MATERIALIZED (
 SELECT current_setting('lock_timeout') AS was, set_config('lock_timeout', $8::text, true) AS is_now
), claimed AS (
 INSERT INTO {records} (owner, key_hash, namespace, operation, op_key, fingerprint, fingerprint_version, attempt, state, created_at)
 SELECT $0::text, $1::bytea, $2::text, $3::text, $4::bytea, $5::bytea, $6::smallint, $7::bytea, 1, {now}
 FROM bound WHERE is_now IS NOT NULL
 ON CONFLICT (owner, key_hash) DO NOTHING RETURNING 1
), total AS MATERIALIZED (SELECT count(*) AS n FROM claimed)
SELECT n, set_config('lock_timeout', CASE WHEN $9::text = '' THEN was ELSE $9::text END, true) FROM total, bound`,
	ClaimSetting: `INSERT INTO {records} (owner, key_hash, namespace, operation, op_key, fingerprint, fingerprint_version, attempt, state, created_at)
SELECT $0::text, $1::bytea, $2::text, $3::text, $4::bytea, $5::bytea, $6::smallint, $7::bytea, 1, {now}
FROM (SELECT set_config('lock_timeout', $8::text, true) AS is_now) bound WHERE is_now IS NOT NULL
ON CONFLICT (owner, key_hash) DO NOTHING`,
	ClaimBounds: true,
	Bound: dialect.Setting{
		Remember: `SELECT pg_catalog.current_setting('lock_timeout')`,
		Before: func(d time.Duration) string {
			return `SELECT pg_catalog.set_config('lock_timeout', '` + dialect.Millis(d) + `ms', true)`
		},
		After: `SELECT pg_catalog.set_config('lock_timeout', '{was}', true)`,
	},

	Renew:        `DELETE FROM {records} WHERE owner = $0 AND key_hash = $1 AND key_expires_at <= {now}`,
	Finish:       finish,
	FinishOrFail: `WITH done AS (` + finish + ` RETURNING 1) SELECT 1 / count(*) FROM done`,
	Untouched:    "SQLSTATE 22012", // division by zero
}

const finish = `UPDATE {records} SET state = $3::smallint, result = $4::bytea, codec = $7::text, business_id = $8::text, finished_at = {now},
 result_expires_at = {now} + $5::bigint, key_expires_at = {now} + $6::bigint
WHERE owner = $0 AND key_hash = $1 AND attempt = $2 AND state = 1`
