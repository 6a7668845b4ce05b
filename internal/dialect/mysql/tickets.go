package mysql

import "github.com/holdfast-go/holdfast/internal/dialect"

// Tickets apply to MariaDB too. The transaction and the batches run at READ COMMITTED, where
// the reads inside a write lock nothing.
var tickets = dialect.TicketSQL{
	Make: `INSERT INTO {locks} (owner, name, token, attempt, holder, granted_at, expires_at)
SELECT $0, $1, f.token, NULL, '', 0, {now} FROM {floor} f WHERE f.id = 1 LOCK IN SHARE MODE
ON DUPLICATE KEY UPDATE {locks}.name = {locks}.name`,
	Draw: `UPDATE {locks} SET token = LAST_INSERT_ID(GREATEST(token + 1, {now}) + $2 - 1), expires_at = {now} WHERE owner = $0 AND name = $1`,
	Enter: `INSERT INTO {tickets} (owner, name, token, attempt, units, capacity, holder, queued_at, granted_at, expires_at)
SELECT $0, $1, $2, $3, $4, $5, $6, {now} + 0 * LAST_INSERT_ID(IF(q.before_it + $4 <= $5, 2, 1)), IF(q.before_it + $4 <= $5, {now}, NULL), {now} + $7
FROM (SELECT COALESCE(SUM(units), 0) AS before_it, COUNT(IF(capacity <> $5, 1, NULL)) AS differing FROM {tickets} WHERE owner = $0 AND name = $1) q
WHERE q.differing = 0 AND ($8 = 0 OR q.before_it + $4 <= $5)`,
	ByInsertID: true,

	Look:   dialect.LookTickets,
	Places: dialect.StandingsOfTickets,
	// The write uses the primary key, so it locks no other row at any isolation level.
	Confirm: `UPDATE {tickets} SET granted_at = COALESCE(granted_at, {now}), expires_at = GREATEST(expires_at, {now} + $4)
WHERE owner = $0 AND name = $1 AND token = $2 AND attempt = $3 AND expires_at > {now}`,
	Dead: dialect.ExpiredTickets,
	// LIMIT prevents the optimizer from merging the derived table, which would lose SKIP
	// LOCKED.
	Clear: `DELETE doomed FROM (
 SELECT name, token FROM {tickets} FORCE INDEX (PRIMARY) WHERE owner = $0 AND name = $1 AND token IN ({tokens}) AND expires_at <= {now}
 ORDER BY token LIMIT 1000000 FOR UPDATE SKIP LOCKED
) picked STRAIGHT_JOIN {tickets} doomed FORCE INDEX (PRIMARY) ON doomed.owner = $0 AND doomed.name = picked.name AND doomed.token = picked.token`,
	Release: dialect.ReleaseTicket,
	Leave: `DELETE doomed FROM (
 SELECT name, token FROM {tickets} FORCE INDEX (tickets_attempt) WHERE owner = $0 AND name IN ({names}) AND attempt IN ({attempts})
 ORDER BY name, token LIMIT 1000000 FOR UPDATE SKIP LOCKED
) picked STRAIGHT_JOIN {tickets} doomed FORCE INDEX (PRIMARY) ON doomed.owner = $0 AND doomed.name = picked.name AND doomed.token = picked.token`,

	// The search uses the attempts, so it does not lock all tickets of a key.
	Renew: `UPDATE {tickets} c JOIN (
 SELECT name, token FROM {tickets} FORCE INDEX (tickets_attempt) WHERE owner = $0 AND name IN ({names}) AND attempt IN ({attempts}) AND expires_at > {now}
 ORDER BY name, token LIMIT 1000000 FOR UPDATE SKIP LOCKED
) f ON c.owner = $0 AND c.name = f.name AND c.token = f.token SET c.expires_at = GREATEST(c.expires_at, {now} + $1)`,
	Remaining: dialect.RemainingTickets,
	// The inner read shows what the transaction's snapshot shows.
	Guard: `SELECT COALESCE((SELECT s.granted_at FROM {tickets} s WHERE s.owner = c.owner AND s.name = c.name AND s.token = c.token), 0) = c.granted_at, ` + dialect.StoreID + `
FROM {tickets} c WHERE c.owner = $0 AND c.name = $1 AND c.token = $2 AND c.granted_at IS NOT NULL LOCK IN SHARE MODE`,
}
