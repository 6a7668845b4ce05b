package postgres

import (
	"database/sql"
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
), locked AS MATERIALIZED (
 SELECT pg_advisory_xact_lock(` + keyLock + `)::text AS done FROM bound WHERE is_now IS NOT NULL
), claimed AS (
 INSERT INTO {records} (owner, key_hash, namespace, operation, op_key, fingerprint, fingerprint_version, attempt, state, created_at)
 SELECT $0::text, $1::bytea, $2::text, $3::text, $4::bytea, $5::bytea, $6::smallint, $7::bytea, 1, {now}
 FROM locked WHERE done IS NOT NULL
 ON CONFLICT (owner, key_hash) DO NOTHING RETURNING 1
), total AS MATERIALIZED (SELECT count(*) AS n FROM claimed)
SELECT n, set_config('lock_timeout', CASE WHEN $9::text = '' THEN was ELSE $9::text END, true) FROM total, bound`,
	ClaimSetting: `WITH bound AS MATERIALIZED (
 SELECT set_config('lock_timeout', $8::text, true) AS is_now
), locked AS MATERIALIZED (
 SELECT pg_advisory_xact_lock(` + keyLock + `)::text AS done FROM bound WHERE is_now IS NOT NULL
)
INSERT INTO {records} (owner, key_hash, namespace, operation, op_key, fingerprint, fingerprint_version, attempt, state, created_at)
SELECT $0::text, $1::bytea, $2::text, $3::text, $4::bytea, $5::bytea, $6::smallint, $7::bytea, 1, {now}
FROM locked WHERE done IS NOT NULL
ON CONFLICT (owner, key_hash) DO NOTHING`,
	ClaimBounds: true,
	Bound: dialect.Setting{
		Remember: `SELECT pg_catalog.current_setting('lock_timeout')`,
		Before: func(d time.Duration) string {
			return `SELECT pg_catalog.set_config('lock_timeout', '` + dialect.Millis(d) + `ms', true)`
		},
		After: `SELECT pg_catalog.set_config('lock_timeout', '{was}', true)`,
	},

	Renew:  `DELETE FROM {records} WHERE owner = $0 AND key_hash = $1 AND key_expires_at <= {now}`,
	Finish: finish,

	// At a higher level the snapshot would be older than the lock for all statements.
	ReserveUpTo: sql.LevelReadCommitted,
	// The snapshot is older than the lock. So if the lock was not free at once, another call may have
	// committed since, and the key is not won. If it was, that is possible too, but only between
	// the two: the write of the record notices, and a read after an error.
	Reserve: `SELECT 1, pg_current_xact_id()::text FROM (
 SELECT CASE WHEN CASE WHEN set_config('lock_timeout', $2::text, true) IS NULL THEN false
   WHEN pg_try_advisory_xact_lock(` + keyLock + `) THEN true ELSE pg_advisory_xact_lock(` + keyLock + `)::text IS NULL END
  THEN CASE WHEN $3::text = $2::text THEN '' ELSE set_config('lock_timeout', $3::text, true) END END AS at_once OFFSET 0
) locked WHERE at_once IS NOT NULL AND NOT EXISTS (SELECT FROM {records} WHERE owner = $0 AND key_hash = $1)`,
	Record: record,
	Before: `SELECT CASE WHEN EXISTS (SELECT FROM {records} WHERE owner = $0 AND key_hash = $1 AND age(xmin) > age($2::text::xid8::xid)
 AND (key_expires_at IS NULL OR key_expires_at > {now})) THEN 1 ELSE 0 END, CASE pg_xact_status($2::text::xid8) WHEN 'committed' THEN 1 ELSE 0 END`,
	Unfinished: `INSERT INTO {records} (owner, key_hash, namespace, operation, op_key, fingerprint, fingerprint_version, attempt, state, created_at)
SELECT $0::text, $1::bytea, $4::text, $5::text, $6::bytea, $7::bytea, $8::smallint, $2::bytea, 1, {now}
WHERE pg_xact_status($3::text::xid8) = 'committed'
ON CONFLICT (owner, key_hash) DO NOTHING`,
	Holders: `SELECT ` + blocker + ` FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity b ON b.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND $0::text IS NOT NULL
 AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
 AND (l.classid::bigint << 32) | l.objid::bigint = ` + keyLock + ` LIMIT 10`,
}

// keyLock is the advisory lock of a key, which all claims hold until their transaction ends. Those of
// two tables with records differ.
const keyLock = `('x' || encode(substr($1::bytea, 1, 8), 'hex'))::bit(64)::bigint # {lockspace}`

// record fails if the transaction is not that of Reserve: it divides by zero (Untouched). It fails with
// class Duplicate if there is a record. ON CONFLICT would cost more, and a WITH around it as well.
const record = `INSERT INTO {records} (owner, key_hash, namespace, operation, op_key, fingerprint, fingerprint_version, attempt,
 state, result, codec, business_id, created_at, finished_at, result_expires_at, key_expires_at,
 holder, program, request_id)
VALUES ($0::text, $1::bytea, $12::text, $13::text, $14::bytea, $15::bytea, $16::smallint, $2::bytea,
 $3::int / (pg_current_xact_id() = $18::text::xid8)::int, $4::bytea, $7::text, $8::text, {now} - $17::bigint, {now}, {now} + $5::bigint, {now} + $6::bigint,
 $9::text, $10::text, $11::text)`

const finish = `UPDATE {records} SET state = $3::smallint, result = $4::bytea, codec = $7::text, business_id = $8::text, finished_at = {now},
 result_expires_at = {now} + $5::bigint, key_expires_at = {now} + $6::bigint,
 holder = $9::text, program = $10::text, request_id = $11::text
WHERE owner = $0 AND key_hash = $1 AND attempt = $2 AND state = 1`
