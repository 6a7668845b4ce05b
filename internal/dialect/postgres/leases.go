package postgres

import "github.com/holdfast-go/holdfast/internal/dialect"

// clock reads the clock once per statement, so a TTL is exact to the microsecond.
const clock = `(SELECT {now} AS now) c`

const (
	// sessionKey is the key of a session's lock.
	sessionKey = `hashtextextended($1::text, 0)`
	// server tells servers, and what one was before a restart, apart.
	server = `(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint::text`
)

var leases = dialect.LeaseSQL{
	// A statement for many locks is one process of the server: 16 clients have nearly twice the throughput with 16
	// statements side by side than with 4 and batches, 32 clients too, 64 the same.
	Spread: 16,
	// Make reads the floor only if the row does not exist. It reads it in share mode, so that
	// the reaper cannot raise the floor between this read and the insert. It neither locks nor
	// writes an existing row.
	Make: dialect.Grant{Text: `INSERT INTO {locks} (owner, name, token, attempt, holder, granted_at, expires_at)
SELECT $0::text, $1::bytea, GREATEST(f.token + 1, c.now), $2::bytea, $4::text, c.now, c.now + $3::bigint
FROM (SELECT token FROM {floor} WHERE id = 1 FOR SHARE) f, ` + clock + `
WHERE NOT EXISTS (SELECT 1 FROM {locks} WHERE owner = $0 AND name = $1::bytea)
ON CONFLICT (owner, name) DO NOTHING RETURNING 1, token, 0::bigint, ''::text`},

	// Take first locks the row, unless another transaction has locked it (SKIP LOCKED), and
	// then tests the locked version. It finds the row by a subquery, because a plan for a join
	// may scan the whole table if the table was small when the plan was made.
	Take: dialect.Grant{Text: `UPDATE {locks} l SET attempt = $2::bytea, holder = $4::text, granted_at = c.now,
 value = CASE WHEN l.attempt = $2::bytea AND l.expires_at > c.now THEN l.value END,
 token = CASE WHEN l.attempt = $2::bytea AND l.expires_at > c.now THEN l.token ELSE GREATEST(l.token + 1, c.now) END,
 terms = CASE WHEN l.attempt = $2::bytea AND l.expires_at > c.now THEN l.terms ELSE l.terms + 1 END,
 expires_at = CASE WHEN l.attempt = $2::bytea AND l.expires_at > c.now THEN GREATEST(l.expires_at, c.now + $3::bigint) ELSE c.now + $3::bigint END
FROM ` + clock + `
WHERE l.owner = $0 AND l.name = (SELECT name FROM {locks} WHERE owner = $0 AND name = $1::bytea AND (attempt IS NULL OR expires_at <= {now} OR attempt = $2::bytea) FOR UPDATE SKIP LOCKED)
RETURNING 1, l.token, 0::bigint, ''::text`},

	HandOver: dialect.Grant{Text: `UPDATE {locks} l SET attempt = $2::bytea, holder = $4::text, granted_at = c.now, value = NULL, token = GREATEST(l.token + 1, c.now), terms = l.terms + 1, expires_at = c.now + $3::bigint
FROM ` + clock + ` WHERE l.owner = $0 AND l.name = $1::bytea AND l.attempt = $5::bytea AND l.expires_at > {now}
RETURNING 1, l.token, 0::bigint, ''::text`},

	Look: dialect.LookLease,
	Release: `UPDATE {locks} SET attempt = NULL, expires_at = {now} WHERE owner = $0 AND name = $1::bytea AND attempt = $2::bytea
RETURNING 1, CASE WHEN EXISTS (SELECT 1 FROM {waiters} w WHERE w.owner = $0 AND w.name = $1::bytea AND w.waiter <> $3::bytea AND w.expires_at > {now}) THEN 1 ELSE 0 END`,
	ReleaseTells: true,

	ManyRow: `({name}::bytea, {attempt}::bytea, {ttl}::bigint)`, ManyJoin: `, `,
	// The insert runs in name order, so that two of these statements do not deadlock.
	MakeMany: `INSERT INTO {locks} (owner, name, token, attempt, holder, granted_at, expires_at)
SELECT $0::text, v.name, GREATEST(f.token + 1, c.now), v.attempt, $1::text, c.now, c.now + v.ttl
FROM (SELECT token FROM {floor} WHERE id = 1 FOR SHARE) f, ` + clock + `, (VALUES {rows}) v (name, attempt, ttl)
WHERE NOT EXISTS (SELECT 1 FROM {locks} l WHERE l.owner = $0 AND l.name = v.name)
ORDER BY v.name
ON CONFLICT (owner, name) DO NOTHING RETURNING attempt, token`,
	TakeMany: `WITH free AS MATERIALIZED (
 SELECT name FROM {locks} WHERE owner = $0 AND name IN ({names}) AND (attempt IS NULL OR expires_at <= {now}) ORDER BY name FOR UPDATE SKIP LOCKED
)
UPDATE {locks} l SET attempt = v.attempt, holder = $1::text, granted_at = c.now, value = NULL, token = GREATEST(l.token + 1, c.now), terms = l.terms + 1, expires_at = c.now + v.ttl
FROM free f JOIN (VALUES {rows}) v (name, attempt, ttl) ON v.name = f.name, ` + clock + `
WHERE l.owner = $0 AND l.name = f.name RETURNING l.attempt, l.token`,
	ReleaseMany: `WITH due AS MATERIALIZED (
 SELECT name, attempt FROM {locks} WHERE owner = $0 AND name IN ({names}) AND attempt IN ({attempts}) ORDER BY name FOR UPDATE SKIP LOCKED
)
UPDATE {locks} l SET attempt = NULL, expires_at = {now} FROM due d WHERE l.owner = $0 AND l.name = d.name
RETURNING d.attempt, CASE WHEN EXISTS (SELECT 1 FROM {waiters} w WHERE w.owner = $0 AND w.name = d.name AND w.waiter <> {waiter}::bytea AND w.expires_at > {now}) THEN 1 ELSE 0 END`,
	Announce: dialect.AnnounceWaiters + `
ON CONFLICT (owner, name, waiter) DO UPDATE SET waiting = EXCLUDED.waiting, expires_at = EXCLUDED.expires_at`,
	AnnounceRow: `($0::text, {name}::bytea, $1::bytea, $2::text, {count}::integer, {now} + $3::bigint)`,
	Listen:      `LISTEN {channel}`,
	Notify:      `SELECT pg_notify($1::text, $2::text)`,
	// The subquery is evaluated first. A wait that ends leaves a line in the server's log.
	Wake: dialect.Wake{Await: `SELECT s.held, 1, 1 FROM (
 SELECT set_config('lock_timeout', '60000', true) AS bound, CASE WHEN pg_try_advisory_xact_lock_shared(` + sessionKey + `) THEN 0 ELSE 1 END AS held OFFSET 0
) s WHERE s.bound IS NOT NULL AND (s.held = 0 OR pg_advisory_xact_lock_shared(` + sessionKey + `) IS NOT NULL)`},
	Liveness: dialect.Liveness{
		Server:  `SELECT ` + server,
		Hold:    `SELECT CASE WHEN pg_try_advisory_lock(` + sessionKey + `) THEN 1 ELSE 0 END, pg_backend_pid()::bigint`,
		Confirm: `SELECT pg_backend_pid()::bigint`,
		Ended:   `SELECT CASE WHEN pg_try_advisory_xact_lock_shared(` + sessionKey + `) THEN 1 ELSE 0 END, ` + server,
	},
	Renew: `WITH clock AS MATERIALIZED (SELECT {now} AS now
), due AS (
 SELECT l.name FROM {locks} l, clock c
 WHERE l.owner = $0 AND l.name IN ({names}) AND l.attempt IN ({attempts}) AND l.expires_at > c.now
 ORDER BY l.name FOR UPDATE OF l SKIP LOCKED
)
UPDATE {locks} l SET expires_at = GREATEST(l.expires_at, c.now + $1::bigint)
FROM due d, clock c WHERE l.owner = $0 AND l.name = d.name RETURNING l.attempt, l.expires_at`,
	Renewed:   true,
	Remaining: dialect.RemainingLease,
	Waits:     dialect.WaitsLease,
	Rivals:    dialect.RivalWaiters,

	// The engine refuses a row that changed after the transaction's snapshot (40001), but only
	// if the row is found by its name alone: the version in the snapshot has another token. A
	// row that is newer than the snapshot cannot be found at all. In that case the term was
	// granted after the transaction began, because its token comes from the clock.
	Guard: `WITH l AS MATERIALIZED (SELECT token, attempt FROM {locks} WHERE owner = $0 AND name = $1::bytea FOR SHARE)
SELECT 1, ` + dialect.StoreID + ` FROM l WHERE token = $2::bigint AND attempt = COALESCE($3::bytea, attempt)
UNION ALL
SELECT 0, NULL WHERE NOT EXISTS (SELECT 1 FROM l) AND current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
 AND $2::bigint > (date_part('epoch', now()) * 1000000)::bigint`,
}
