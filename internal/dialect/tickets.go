package dialect

// TicketSQL is the SQL of fair locks and semaphores. {tickets} is the table, {locks} and {floor}
// are the tables of the leases, and {now} is the clock.
//
// A ticket is a place in a key's queue, for some units of a capacity; an exclusive ticket
// takes the whole capacity. A ticket is granted once its own units and those of all tickets
// before it fit into the capacity. It stays granted until it is deleted. Tickets only enter at
// the end, so the standing of a ticket changes only when a ticket before it leaves, and a read
// is enough to know it. They enter at the end because they draw their token from the key's row
// in {locks}, which is always free, and keep that row locked until they commit. An expired
// ticket counts like any other until it is deleted.
//
// $0 is the owner of all keys of a statement. Parameters in order:
//
//	Make:      name
//	Draw:      name, n (returns the last of n new tokens; no row: the key's row is missing)
//	Enter:     name, token, attempt, units, capacity, holder, TTL (µs), 1 for "now or not at all"
//	Ahead:     name, capacity (returns the units of all tickets, and the tickets of another
//	           capacity)
//	Look:      name (returns holder, token, capacity, µs left, units of all tickets, units of
//	           the live tickets)
//	Places:    {attempts} (returns attempt, µs left, 1 if confirmed, units before it, units
//	           of live tickets before it, tickets before it, the attempt of the first ticket)
//	Confirm:   name, token, attempt, TTL (µs)
//	Dead:      name (returns tokens)
//	Clear:     name, then {tokens}
//	Release:   name, token, attempt; if it grants, also the channel and the payload of its notifications
//	Leave:     {names} and as many {attempts}
//	Renew, Remaining: as in Leases
//	Guard:     name, token (returns 1, or 0 if the snapshot does not contain the grant, or -1
//	           if the ticket waits; and the store)
//	Stale:     token (returns 1 if the transaction began before the ticket)
type TicketSQL struct {
	// Make inserts the key's row, above the floor, unless it exists. It runs as a separate
	// statement, because inserts within transactions deadlock on InnoDB when one of them rolls
	// back.
	Make string
	// Draw is the first statement of the transaction that runs Enter. On engines where the
	// lock timeout needs a statement, Draw also sets it.
	Draw string
	// Enter inserts a ticket, unless other tickets of its key have another capacity. Where Ahead
	// is not empty, Ahead reads what Enter depends on, Enter inserts in any case, and its last
	// parameter is 1 if the ticket is granted at once.
	Enter, Ahead string
	// ByInsertID: Draw returns the token as its insert id. Enter returns 2 as its insert id if
	// the ticket was granted at once, and 1 if it waits. Otherwise both return a row.
	ByInsertID bool

	Look, Places string
	// Confirm records that a ticket is granted, and extends its TTL.
	Confirm string
	// Dead finds expired tickets. Clear tests their expiry again, and skips locked tickets,
	// such as those of guarded transactions.
	Dead, Clear string
	// Release deletes one ticket, and waits for the transactions that it guards. If ReleaseGrants is
	// set, it also marks the next tickets that have room as granted, without moving their expiry, and notifies
	// their processes: the payload, a slash and the attempt. If it deleted the ticket it returns rows: the attempts that
	// it granted, with 1; or the attempt of the first ticket that waits, with 0, whose process it
	// notifies with the payload alone; or NULL and 0. Otherwise it is a write. Leave deletes many, and
	// skips locked ones.
	Release, Leave string
	ReleaseGrants  bool

	// GuardWrite is as in Leases.
	Renew, Remaining, Guard, GuardWrite string
	// Stale tells why Guard finds no ticket: if the snapshot is older than the row, even a
	// locking read does not find it.
	Stale string
}

// Statements that are the same on every engine, or nearly the same.
const (
	LookTickets = `SELECT holder, token, capacity, CASE WHEN expires_at > {now} THEN expires_at - {now} ELSE 0 END,
 (SELECT SUM(units) FROM {tickets} WHERE owner = $0 AND name = $1),
 (SELECT SUM(CASE WHEN expires_at > {now} THEN units ELSE 0 END) FROM {tickets} WHERE owner = $0 AND name = $1)
FROM {tickets} WHERE owner = $0 AND name = $1 ORDER BY CASE WHEN expires_at > {now} THEN 0 ELSE 1 END, token LIMIT 1`
	// StandingsOfTickets reads the first ticket outside of the sums: vtgate 24 sends another text to a shard
	// if one SELECT has a subquery in its list and groups.
	StandingsOfTickets = `SELECT s.attempt, s.left_us, s.confirmed, s.before_it, s.live_before_it, s.tickets_before_it,
 (SELECT f.attempt FROM {tickets} f WHERE f.owner = $0 AND f.name = s.name ORDER BY f.token LIMIT 1)
FROM (SELECT c.name, c.attempt, c.expires_at - {now} AS left_us, CASE WHEN c.granted_at IS NULL THEN 0 ELSE 1 END AS confirmed,
  COALESCE(SUM(a.units), 0) AS before_it, COALESCE(SUM(CASE WHEN a.expires_at > {now} THEN a.units ELSE 0 END), 0) AS live_before_it, COUNT(a.token) AS tickets_before_it
 FROM {tickets} c LEFT JOIN {tickets} a ON a.owner = $0 AND a.name = c.name AND a.token < c.token
 WHERE c.owner = $0 AND c.attempt IN ({attempts}) GROUP BY c.name, c.attempt, c.expires_at, c.granted_at) s`
	// QueueOfTickets reads the queue of one name, and a row without a ticket for what the name's own row says. That may
	// have gone: the reaper deletes it while its tickets live. listTickets reads queues of one owner, or of all:
	// {after} is the condition for the tickets after an owner, a name and a token. Parameters:
	// the name; or these three (from $0), the names to begin with and to end before, and the limit.
	QueueOfTickets = queueOfTickets + ` WHERE c.owner = $0 AND c.name = $1
UNION ALL SELECT l.owner, l.name, 0, 0, 0, '', 0, 0` + forcedOfTickets + ` FROM {locks} l WHERE l.owner = $0 AND l.name = $1 ORDER BY 3`
	listTickets = queueOfTickets + `
WHERE {after} AND c.name >= $3 AND c.name < $4 ORDER BY c.owner, c.name, c.token LIMIT $5`
	queueOfTickets = `SELECT c.owner, c.name, c.token, c.units, c.capacity, COALESCE(c.holder, ''), c.queued_at,
 CASE WHEN c.expires_at > {now} THEN c.expires_at - {now} ELSE 0 END` + forcedOfTickets + `
FROM {tickets} c LEFT JOIN {locks} l ON l.owner = c.owner AND l.name = c.name`
	forcedOfTickets = `, l.forced_at, COALESCE(l.forced_by, ''), COALESCE(l.forced_reason, '')`
	// WaitingTickets returns a row for each of {names} that a ticket waits for.
	WaitingTickets = `SELECT name, 1 FROM {tickets} WHERE owner = $0 AND name IN ({names}) AND granted_at IS NULL AND expires_at > {now} GROUP BY name`
	// ForceTicket deletes a ticket (name, token). ForcedTicket records the actor and the
	// reason (name, by, reason).
	ForceTicket  = `DELETE FROM {tickets} WHERE owner = $0 AND name = $1 AND token = $2`
	ForcedTicket = `UPDATE {locks} SET forced_at = {now}, forced_by = $2, forced_reason = $3 WHERE owner = $0 AND name = $1`

	ExpiredTickets   = `SELECT token FROM {tickets} WHERE owner = $0 AND name = $1 AND expires_at <= {now} ORDER BY token LIMIT 100`
	ReleaseTicket    = `DELETE FROM {tickets} WHERE owner = $0 AND name = $1 AND token = $2 AND attempt = $3`
	RemainingTickets = `SELECT attempt, expires_at - {now} FROM {tickets} WHERE owner = $0 AND name IN ({names}) AND attempt IN ({attempts})`
)
