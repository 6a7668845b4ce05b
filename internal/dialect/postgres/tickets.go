package postgres

import "github.com/holdfast-go/holdfast/internal/dialect"

var tickets = dialect.TicketSQL{
	Make: `INSERT INTO {locks} (owner, name, token, attempt, holder, granted_at, expires_at)
SELECT $0::text, $1::bytea, f.token, NULL, '', 0, {now} FROM (SELECT token FROM {floor} WHERE id = 1 FOR SHARE) f
ON CONFLICT (owner, name) DO NOTHING`,
	Draw: `WITH bound AS MATERIALIZED (SELECT set_config('lock_timeout', '1000ms', true) AS is_now)
UPDATE {locks} l SET token = GREATEST(l.token + 1, {now}) + $2::bigint - 1, expires_at = {now}
FROM bound WHERE l.owner = $0 AND l.name = $1::bytea AND is_now IS NOT NULL RETURNING l.token`,
	// Enter is a separate statement, so its snapshot is taken after Draw's lock.
	Enter: `INSERT INTO {tickets} (owner, name, token, attempt, units, capacity, holder, queued_at, granted_at, expires_at)
SELECT $0::text, $1::bytea, $2::bigint, $3::bytea, $4::integer, $5::integer, $6::text, {now}, CASE WHEN q.before_it + $4::integer <= $5::integer THEN {now} END, {now} + $7::bigint
FROM (SELECT COALESCE(SUM(units), 0) AS before_it, COUNT(*) FILTER (WHERE capacity <> $5::integer) AS differing FROM {tickets} WHERE owner = $0 AND name = $1::bytea) q
WHERE q.differing = 0 AND ($8::integer = 0 OR q.before_it + $4::integer <= $5::integer)
RETURNING CASE WHEN granted_at IS NULL THEN 1 ELSE 2 END`,

	Look:   dialect.LookTickets,
	Places: dialect.StandingsOfTickets,
	Confirm: `UPDATE {tickets} SET granted_at = COALESCE(granted_at, {now}), expires_at = GREATEST(expires_at, {now} + $4::bigint)
WHERE owner = $0 AND name = $1::bytea AND token = $2::bigint AND attempt = $3::bytea AND expires_at > {now}`,
	Dead: dialect.ExpiredTickets,
	Clear: `WITH picked AS MATERIALIZED (
 SELECT token FROM {tickets} WHERE owner = $0 AND name = $1::bytea AND token IN ({tokens}) AND expires_at <= {now} ORDER BY token FOR UPDATE SKIP LOCKED
) DELETE FROM {tickets} WHERE owner = $0 AND name = $1::bytea AND token IN (SELECT token FROM picked)`,
	// head is the queue without the own ticket, and comes after the wait for the transactions that it guards. free
	// tests the locked version of each row. The first 8 bytes of an attempt are its process. At
	// SERIALIZABLE, a read of the other tickets would conflict with each of their writes, and PostgreSQL 15
	// reads the whole queue for an empty array of tokens, too.
	Release: `WITH gone AS (
 DELETE FROM {tickets} WHERE owner = $0 AND name = $1::bytea AND token = $2::bigint AND attempt = $3::bytea RETURNING token
), head AS MATERIALIZED (
 SELECT t.*, SUM(t.units) OVER (ORDER BY t.token) <= t.capacity AS fits FROM gone CROSS JOIN LATERAL (
  SELECT q.token, q.attempt, q.units, q.capacity, q.granted_at IS NULL AND q.expires_at > {now} AS waits FROM {tickets} q
  WHERE q.owner = $0 AND q.name = $1::bytea AND q.token <> gone.token AND current_setting('transaction_isolation') <> 'serializable' ORDER BY q.token LIMIT 32
 ) t
), free AS MATERIALIZED (
 SELECT token FROM {tickets} WHERE owner = $0 AND name = $1::bytea AND token = ANY (ARRAY(SELECT token FROM head WHERE waits AND fits)) AND granted_at IS NULL AND expires_at > {now}
  AND current_setting('transaction_isolation') <> 'serializable'
 ORDER BY token FOR UPDATE SKIP LOCKED
), granted AS (
 UPDATE {tickets} SET granted_at = {now} WHERE owner = $0 AND name = $1::bytea AND token = ANY (ARRAY(SELECT token FROM free)) AND current_setting('transaction_isolation') <> 'serializable' RETURNING attempt
), news AS (
 SELECT attempt, 1 AS granted, '/' || encode(attempt, 'hex') AS of_it, substr(attempt, 1, 8) <> substr($3::bytea, 1, 8) AS away FROM granted
 UNION ALL
 (SELECT attempt, 0, '', units < capacity OR substr(attempt, 1, 8) <> substr($3::bytea, 1, 8) FROM head WHERE waits AND NOT EXISTS (SELECT FROM granted) ORDER BY token LIMIT 1)
)
SELECT n.attempt, COALESCE(n.granted, 0) FROM gone LEFT JOIN news n ON CASE WHEN n.away THEN pg_notify($4::text, $5::text || n.of_it) IS NOT NULL ELSE true END`,
	ReleaseGrants: true,
	Leave: `WITH picked AS MATERIALIZED (
 SELECT name, token FROM {tickets} WHERE owner = $0 AND name IN ({names}) AND attempt IN ({attempts}) ORDER BY name, token FOR UPDATE SKIP LOCKED
) DELETE FROM {tickets} c USING picked p WHERE c.owner = $0 AND c.name = p.name AND c.token = p.token`,

	Renew: `WITH clock AS MATERIALIZED (SELECT {now} AS now
), due AS (
 SELECT c.name, c.token FROM {tickets} c, clock
 WHERE c.owner = $0 AND c.name IN ({names}) AND c.attempt IN ({attempts}) AND c.expires_at > clock.now
 ORDER BY c.name, c.token FOR UPDATE OF c SKIP LOCKED
)
UPDATE {tickets} c SET expires_at = GREATEST(c.expires_at, clock.now + $1::bigint)
FROM due d, clock WHERE c.owner = $0 AND c.name = d.name AND c.token = d.token RETURNING c.attempt, c.expires_at`,
	Remaining: dialect.RemainingTickets,
	// The engine refuses a row that changed since the snapshot (40001), but only if the
	// condition contains nothing except the key.
	Guard: `SELECT CASE WHEN granted_at IS NULL THEN -1 ELSE 1 END, ` + dialect.StoreID + ` FROM {tickets} WHERE owner = $0 AND name = $1::bytea AND token = $2::bigint FOR SHARE`,
	Stale: `SELECT CASE WHEN current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
 AND (date_part('epoch', now()) * 1000000)::bigint < $1::bigint THEN 1 ELSE 0 END`,
}
