package sqlite

import "github.com/holdfast-go/holdfast/internal/dialect"

// Draw is a write, so it takes the only write lock before anything is read.
var tickets = dialect.TicketSQL{
	Make: `INSERT INTO {locks} (owner, name, token, attempt, holder, granted_at, expires_at)
SELECT $0, $1, f.token, NULL, '', 0, {now} FROM {floor} f WHERE f.id = 1 ON CONFLICT (owner, name) DO NOTHING`,
	Draw: `UPDATE {locks} SET token = MAX(token + 1, {now}) + $2 - 1, expires_at = {now} WHERE owner = $0 AND name = $1 RETURNING token`,
	Enter: `INSERT INTO {tickets} (owner, name, token, attempt, units, capacity, holder, queued_at, granted_at, expires_at)
SELECT $0, $1, $2, $3, $4, $5, $6, {now}, CASE WHEN q.before_it + $4 <= $5 THEN {now} END, {now} + $7
FROM (SELECT COALESCE(SUM(units), 0) AS before_it, COUNT(*) FILTER (WHERE capacity <> $5) AS differing FROM {tickets} WHERE owner = $0 AND name = $1) q
WHERE q.differing = 0 AND ($8 = 0 OR q.before_it + $4 <= $5)
RETURNING CASE WHEN granted_at IS NULL THEN 1 ELSE 2 END`,

	Look:   dialect.LookTickets,
	Places: dialect.StandingsOfTickets,
	Confirm: `UPDATE {tickets} SET granted_at = COALESCE(granted_at, {now}), expires_at = MAX(expires_at, {now} + $4)
WHERE owner = $0 AND name = $1 AND token = $2 AND attempt = $3 AND expires_at > {now}`,
	Dead:    dialect.ExpiredTickets,
	Clear:   `DELETE FROM {tickets} WHERE owner = $0 AND name = $1 AND token IN ({tokens}) AND expires_at <= {now}`,
	Release: dialect.ReleaseTicket,
	Leave:   `DELETE FROM {tickets} WHERE owner = $0 AND name IN ({names}) AND attempt IN ({attempts})`,

	Renew: `UPDATE {tickets} SET expires_at = MAX(expires_at, {now} + $1)
WHERE owner = $0 AND name IN ({names}) AND attempt IN ({attempts}) AND expires_at > {now} RETURNING attempt, expires_at`,
	Remaining: dialect.RemainingTickets,
	Guard:     `UPDATE {tickets} SET attempt = attempt WHERE owner = $0 AND name = $1 AND token = $2 AND granted_at IS NOT NULL RETURNING 1, ` + dialect.StoreID,
}
