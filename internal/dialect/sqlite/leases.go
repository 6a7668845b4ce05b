package sqlite

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// SQLite has one writer at a time, so no row needs its own lock.
var leases = dialect.LeaseSQL{
	Take: dialect.Grant{Text: `INSERT INTO {locks} AS l (owner, name, token, attempt, holder, granted_at, expires_at)
SELECT $0, $1, MAX(f.token + 1, {now}), $2, $4, {now}, {now} + $3 FROM {floor} f WHERE f.id = 1
ON CONFLICT (owner, name) DO UPDATE SET attempt = $2, holder = $4, granted_at = {now},
 value = CASE WHEN l.attempt = $2 AND l.expires_at > {now} THEN l.value END,
 token = CASE WHEN l.attempt = $2 AND l.expires_at > {now} THEN l.token ELSE MAX(l.token + 1, {now}) END,
 terms = CASE WHEN l.attempt = $2 AND l.expires_at > {now} THEN l.terms ELSE l.terms + 1 END,
 expires_at = CASE WHEN l.attempt = $2 AND l.expires_at > {now} THEN MAX(l.expires_at, {now} + $3) ELSE {now} + $3 END
WHERE l.attempt IS NULL OR l.expires_at <= {now} OR l.attempt = $2
RETURNING 1, token, 0, ''`},
	TakeBound: busyTimeout,

	HandOver: dialect.Grant{Text: `UPDATE {locks} SET attempt = $2, holder = $4, granted_at = {now}, value = NULL, token = MAX(token + 1, {now}), terms = terms + 1, expires_at = {now} + $3
WHERE owner = $0 AND name = $1 AND attempt = $5 AND expires_at > {now} RETURNING 1, token, 0, ''`},

	Look:    dialect.LookLease,
	Release: dialect.ReleaseLease,

	ManyRow: `({name}, {attempt}, {ttl})`, ManyJoin: `, `,
	TakeMany: `WITH v (name, attempt, ttl) AS (VALUES {rows})
INSERT INTO {locks} AS l (owner, name, token, attempt, holder, granted_at, expires_at)
SELECT $0, v.name, MAX(f.token + 1, {now}), v.attempt, $1, {now}, {now} + v.ttl FROM {floor} f, v WHERE f.id = 1
ON CONFLICT (owner, name) DO UPDATE SET attempt = excluded.attempt, holder = $1, granted_at = {now}, value = NULL,
 token = MAX(l.token + 1, {now}), terms = l.terms + 1, expires_at = excluded.expires_at
WHERE l.attempt IS NULL OR l.expires_at <= {now}
RETURNING attempt, token`,
	ReleaseMany: `UPDATE {locks} SET attempt = NULL, expires_at = {now} WHERE owner = $0 AND name IN ({names}) AND attempt IN ({attempts})`,
	Released:    dialect.ReleasedLeases,
	Announce: dialect.AnnounceWaiters + `
ON CONFLICT (owner, name, waiter) DO UPDATE SET waiting = excluded.waiting, expires_at = excluded.expires_at`,
	AnnounceRow: dialect.AnnounceRow,
	Renew: `UPDATE {locks} SET expires_at = MAX(expires_at, {now} + $1)
WHERE owner = $0 AND name IN ({names}) AND attempt IN ({attempts}) AND expires_at > {now} RETURNING attempt, expires_at`,
	Renewed:   true,
	Remaining: dialect.RemainingLease,
	Waits:     dialect.WaitsLease,
	Rivals:    dialect.RivalWaiters,
	PollMost:  5 * time.Millisecond, // it reads a page of memory

	// A write takes the only write lock. It fails if the snapshot is older than another
	// connection's commit (SQLITE_BUSY_SNAPSHOT).
	Guard: `UPDATE {locks} SET attempt = attempt WHERE owner = $0 AND name = $1 AND token = $2 AND attempt = COALESCE($3, attempt) RETURNING 1, ` + dialect.StoreID,
}
