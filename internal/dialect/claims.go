package dialect

// Claims is the SQL of the locks that have a line in the database. {claims} is
// its table, {locks} and {floor} are the tables of the leases, {now} the clock.
//
// A claim is a place in a key's line, for so many units of a capacity. It is
// granted, and stays so until it is gone, once the units of all claims before it
// and its own are within the capacity: an exclusive claim is for all of it. As
// claims join at the end only, nothing but the leaving of those before it
// changes that, and reading it is enough to know it. Claims join at the end
// because they draw their token from the key's anchor, a row of {locks} without
// an owner, and keep it locked until they commit. A claim that has expired counts
// like any other, until it is cleared away.
//
// Parameters in order:
//
//	Make:      name
//	Draw:      name, n (returns the last of n new tokens; nothing: no anchor)
//	Enter:     name, token, owner, units, capacity, holder, TTL (µs), 1 for "now or not at all"
//	Look:      name (returns holder, token, capacity, µs left, units of all, units of those that live)
//	Places:    {owners} (returns owner, µs left, 1 if Confirm was there, units before it,
//	           units before it of those that live, claims before it)
//	Confirm:   name, token, owner, TTL (µs)
//	Dead:      name (returns tokens)
//	Clear:     name, then {tokens}
//	Release:   name, token, owner
//	Leave:     {names} and as many {owners}
//	Renew, Remaining: as those of Leases
//	Guard:     name, token (returns 1, 0 for a snapshot that does not know the grant, -1 for one that waits)
//	Stale:     token (returns 1 where the transaction began before the claim)
type Claims struct {
	// Make makes the anchor, above the floor, unless it is there. It is a
	// statement of its own: within a transaction, inserts deadlock on InnoDB
	// when one of them rolls back.
	Make string
	// Draw is the first statement of the transaction that Enter is in. It sets
	// the transaction's lock timeout where that is a statement of its own.
	Draw string
	// Enter inserts a claim unless others of its key have another capacity.
	Enter string
	// ByInsertID: Draw gives the token as its insert id, and Enter 2 when the
	// claim was granted at once, 1 when it waits. Otherwise they return it.
	ByInsertID bool

	Look, Places string
	// Confirm writes down that a claim is granted, and begins its time anew.
	Confirm string
	// Dead finds claims that have expired. Clear tests that again, and passes
	// over those that are locked, as by a guarded transaction.
	Dead, Clear string
	// Release takes one claim out, and waits for what it guards; Leave takes many
	// out, and passes over those that are locked.
	Release, Leave string

	// GuardWrite is as that of Leases.
	Renew, Remaining, Guard, GuardWrite string
	// Stale says why Guard finds no claim, where it is asked: a snapshot that is
	// older than its row does not show it even to a locking read.
	Stale string
}

// The statements that are the same on every engine, or nearly.
const (
	LookClaims = `SELECT holder, token, capacity, CASE WHEN expires_at > {now} THEN expires_at - {now} ELSE 0 END,
 (SELECT SUM(units) FROM {claims} WHERE name = $1),
 (SELECT SUM(CASE WHEN expires_at > {now} THEN units ELSE 0 END) FROM {claims} WHERE name = $1)
FROM {claims} WHERE name = $1 ORDER BY CASE WHEN expires_at > {now} THEN 0 ELSE 1 END, token LIMIT 1`
	PlacesOfClaims = `SELECT c.owner, c.expires_at - {now}, CASE WHEN c.granted_at IS NULL THEN 0 ELSE 1 END,
 COALESCE(SUM(a.units), 0), COALESCE(SUM(CASE WHEN a.expires_at > {now} THEN a.units ELSE 0 END), 0), COUNT(a.token)
FROM {claims} c LEFT JOIN {claims} a ON a.name = c.name AND a.token < c.token
WHERE c.owner IN ({owners}) GROUP BY c.owner, c.expires_at, c.granted_at`
	// LineOfClaims and ListClaims read lines: of one name, or of those from a name
	// and token on and before another name. Parameters: the name; or name, token,
	// the other name, limit.
	LineOfClaims = lineOfClaims + ` LEFT JOIN {claims} c ON c.name = l.name WHERE l.name = $1 ORDER BY c.token`
	ListClaims   = lineOfClaims + ` JOIN {claims} c ON c.name = l.name
WHERE c.name >= $1 AND (c.name > $1 OR c.token > $2) AND c.name < $3 ORDER BY c.name, c.token LIMIT $4`
	lineOfClaims = `SELECT l.name, COALESCE(c.token, 0), COALESCE(c.units, 0), COALESCE(c.capacity, 0), COALESCE(c.holder, ''), COALESCE(c.claimed_at, 0),
 CASE WHEN c.expires_at > {now} THEN c.expires_at - {now} ELSE 0 END, l.forced_at, COALESCE(l.forced_by, ''), COALESCE(l.forced_reason, '')
FROM {locks} l`
	// ForceClaim takes a place away (name, token), ForcedClaim records by whom and
	// why (name, by, reason).
	ForceClaim  = `DELETE FROM {claims} WHERE name = $1 AND token = $2`
	ForcedClaim = `UPDATE {locks} SET forced_at = {now}, forced_by = $2, forced_reason = $3 WHERE name = $1`

	DeadClaims      = `SELECT token FROM {claims} WHERE name = $1 AND expires_at <= {now} ORDER BY token LIMIT 100`
	ReleaseClaim    = `DELETE FROM {claims} WHERE name = $1 AND token = $2 AND owner = $3`
	RemainingClaims = `SELECT owner, expires_at - {now} FROM {claims} WHERE name IN ({names}) AND owner IN ({owners})`
)
