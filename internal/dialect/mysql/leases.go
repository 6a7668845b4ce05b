package mysql

import "github.com/holdfast-go/holdfast/internal/dialect"

// server tells the servers of a topology apart.
const server = `CONCAT(@@hostname, '/', @@port, '/', @@server_id)`

var leases = dialect.LeaseSQL{
	// A plain insert that finds the row takes a shared lock, which is compatible with a
	// guard's lock. An upsert would wait for the guarded transaction.
	Make: dialect.Grant{ByInsertID: true, Text: `INSERT INTO {locks} (owner, name, token, attempt, holder, granted_at, expires_at)
SELECT $0, $1, LAST_INSERT_ID(GREATEST(f.token + 1, {now})), $2, $4, {now}, {now} + $3 FROM {floor} f WHERE f.id = 1 LOCK IN SHARE MODE`},

	// LIMIT prevents the optimizer from merging the derived table, which would lose SKIP
	// LOCKED. The name must come from that table: with a name that the optimizer knows it reads the
	// row of l first, and waits for its lock.
	Take: dialect.Grant{ByInsertID: true, Text: `UPDATE {locks} l JOIN (
 SELECT name, token, attempt, expires_at FROM {locks}
 WHERE owner = $0 AND name = $1 AND (attempt IS NULL OR expires_at <= {now} OR attempt = $2) LIMIT 1 FOR UPDATE SKIP LOCKED
) f ON l.owner = $0 AND l.name = f.name
SET l.attempt = $2, l.holder = $4, l.granted_at = {now},
 l.value = IF(f.attempt <=> $2 AND f.expires_at > {now}, l.value, NULL),
 l.terms = IF(f.attempt <=> $2 AND f.expires_at > {now}, l.terms, l.terms + 1),
 l.token = LAST_INSERT_ID(IF(f.attempt <=> $2 AND f.expires_at > {now}, f.token, GREATEST(f.token + 1, {now}))),
 l.expires_at = IF(f.attempt <=> $2 AND f.expires_at > {now}, GREATEST(f.expires_at, {now} + $3), {now} + $3)`},

	// Assignments run from left to right, so each column is read before it is assigned.
	HandOver: dialect.Grant{ByInsertID: true, Text: `UPDATE {locks}
SET token = LAST_INSERT_ID(GREATEST(token + 1, {now})), terms = terms + 1, holder = $4, granted_at = {now}, value = NULL, expires_at = {now} + $3, attempt = $2
WHERE owner = $0 AND name = $1 AND attempt = $5 AND expires_at > {now}`},
	Look:    dialect.LookLease,
	Release: dialect.ReleaseLease,

	// UNION removes the repeated rows that pad a list. CAST prevents MySQL from reading names
	// as text. STRAIGHT_JOIN makes MySQL look up the table by the few names.
	ManyRow: `SELECT CAST({name} AS BINARY) AS name, CAST({attempt} AS BINARY) AS attempt, CAST({ttl} AS SIGNED) AS ttl`, ManyJoin: ` UNION `,
	MakeMany: `INSERT INTO {locks} (owner, name, token, attempt, holder, granted_at, expires_at)
SELECT $0, v.name, GREATEST(f.token + 1, {now}), v.attempt, $1, {now}, {now} + v.ttl
FROM {floor} f JOIN ({rows}) v WHERE f.id = 1 AND NOT EXISTS (SELECT 1 FROM {locks} l WHERE l.owner = $0 AND l.name = v.name) LOCK IN SHARE MODE`,
	// Without the hint the optimizers may read all locks of the owner, and lock each for a moment,
	// so that a statement for others of them skips it.
	TakeMany: `UPDATE (
 SELECT name FROM {locks} FORCE INDEX (PRIMARY) WHERE owner = $0 AND name IN ({names}) AND (attempt IS NULL OR expires_at <= {now})
 ORDER BY name LIMIT 1000000 FOR UPDATE SKIP LOCKED
) f STRAIGHT_JOIN ({rows}) v ON v.name = f.name STRAIGHT_JOIN {locks} l ON l.owner = $0 AND l.name = f.name
SET l.token = GREATEST(l.token + 1, {now}), l.terms = l.terms + 1, l.attempt = v.attempt, l.holder = $1, l.granted_at = {now}, l.value = NULL, l.expires_at = {now} + v.ttl`,
	Granted: dialect.GrantedLeases,
	ReleaseMany: `UPDATE (
 SELECT name FROM {locks} FORCE INDEX (PRIMARY) WHERE owner = $0 AND name IN ({names}) AND attempt IN ({attempts}) ORDER BY name LIMIT 1000000 FOR UPDATE SKIP LOCKED
) f STRAIGHT_JOIN {locks} l ON l.owner = $0 AND l.name = f.name SET l.attempt = NULL, l.expires_at = {now}`,
	Released: dialect.ReleasedLeases,
	// MariaDB supports only VALUES(). MySQL supports it too, but has deprecated it.
	Announce: dialect.AnnounceWaiters + `
ON DUPLICATE KEY UPDATE waiting = VALUES(waiting), expires_at = VALUES(expires_at)`,
	AnnounceRow: dialect.AnnounceRow,

	Renew: `UPDATE {locks} l JOIN (
 SELECT name FROM {locks} FORCE INDEX (PRIMARY) WHERE owner = $0 AND name IN ({names}) AND attempt IN ({attempts}) AND expires_at > {now}
 ORDER BY name LIMIT 1000000 FOR UPDATE SKIP LOCKED
) f ON l.owner = $0 AND l.name = f.name SET l.expires_at = GREATEST(l.expires_at, {now} + $1)`,
	Remaining: dialect.RemainingLease,
	Waits:     dialect.WaitsLease,
	Rivals:    dialect.RivalWaiters,
	// The functions of a row run from left to right.
	Wake: dialect.Wake{
		Hold:  `SELECT GET_LOCK($1, 1)`,
		Wake:  `SELECT RELEASE_LOCK($1), GET_LOCK($1, 10)`,
		Await: `SELECT IS_USED_LOCK($1) IS NOT NULL, GET_LOCK($1, 1), RELEASE_LOCK($1)`,
	},

	Liveness: dialect.Liveness{
		Server:  `SELECT ` + server,
		Hold:    `SELECT GET_LOCK($1, 0), CONNECTION_ID()`,
		Confirm: `SELECT CONNECTION_ID()`,
		Ended:   `SELECT IS_FREE_LOCK($1), ` + server,
	},

	ManyBefore: `SET TRANSACTION ISOLATION LEVEL READ COMMITTED`,

	// The inner read is a plain read, so it shows what the transaction's snapshot shows. At
	// REPEATABLE READ, the snapshot may be older than the grant, or than the attempt that resumed it.
	Guard: `SELECT COALESCE((SELECT s.token = l.token AND s.attempt = l.attempt FROM {locks} s WHERE s.owner = l.owner AND s.name = l.name), 0), ` + dialect.StoreID + `
FROM {locks} l WHERE l.owner = $0 AND l.name = $1 AND l.token = $2 AND l.attempt = COALESCE($3, l.attempt) LOCK IN SHARE MODE`,
}
