package dialect

// Leases is the SQL of the lease locks. {locks} and {floor} are the tables,
// {now} the clock. A row is free when it has no owner or its expiry has passed.
// An owner is the id of one attempt to get the lock, so it stands for the term
// that the attempt was granted. Parameters in order:
//
//	Make, Take: name, owner, TTL (µs), holder
//	HandOver:   name, owner, TTL (µs), holder, owner so far
//	Look:       name (returns owner, token, µs left, holder; no row: no lock)
//	MakeMany, TakeMany: holder, then {names}, owners and TTLs: {rows} are as many
//	            as ManyRow, of {name}, {owner} and {ttl}
//	Granted:    {names} and as many {owners} (returns owner, token)
//	ReleaseMany: {names} and as many {owners}, then waiter where it tells
//	Released:   {names} and as many {owners} (returns name, and the token of a row
//	            that nobody has, 0 where it is one of the owners', -1 where another's)
//	Release:    name, owner, waiter (on whose account nobody need be told)
//	Register:   waiter, holder, life (µs), then name and count of each row
//	Renew:      TTL (µs), then {names} and as many {owners}
//	Remaining:  {names} and as many {owners} (returns owner, µs left)
//	Waits:      {names} (returns name, µs left, 0 when free)
//	Guard:      name, token (returns whether the transaction's snapshot knows the term)
type Leases struct {
	// Make inserts the row of a lock that never was; no row of its own, or an
	// error of class Duplicate, says that there is one. Where it returns a row
	// nevertheless, it did all that Take does. Where it is empty, Take makes too.
	Make Grant
	// Take takes over a row that is free. It waits for no row lock: one that a
	// guarded transaction holds is as good as held. An attempt that is sent
	// again finds its own term.
	Take Grant
	// TakeBound surrounds Take where it would wait nevertheless: SQLite has one
	// write lock, and each of its writes takes it.
	TakeBound Setting
	// HandOver turns the term of one owner into the next term, of another.
	HandOver Grant
	Look     string
	// Release ends a term. Where it tells, it returns one row if it did, with a
	// 1 and how many other processes wait for the lock; otherwise it is a write.
	Release      string
	ReleaseTells bool
	// MakeMany, TakeMany and ReleaseMany do it for several at once and pass over
	// rows that are locked. MakeMany may refuse all (Duplicate) for a row that
	// somebody else makes meanwhile; where it is empty, TakeMany makes too. They
	// return owner and token of those that were granted, or are writes, and Granted
	// says it. ReleaseMany returns owner and how many others wait where Release
	// tells, or is a write; where that did not end all, Released says of each.
	MakeMany, TakeMany, Granted string
	ManyRow, ManyJoin           string
	ReleaseMany, Released       string
	// Register says who waits: {rows} are as many as RegisterRow. Listen has the
	// session hear of {bell}, and Ring (with {bell}'s name and a payload) is
	// heard there; they are empty where the engine has no such thing.
	Register, RegisterRow string
	Listen, Ring          string

	// Renew moves the expiry of terms that are live, and passes over those that
	// are locked. Renewed: it returns the owners of those that it moved.
	Renew            string
	Renewed          bool
	Remaining, Waits string
	// ManyBefore holds for the next statement, one for many rows: at REPEATABLE
	// READ such a one of InnoDB's waits even for rows that it does not name.
	ManyBefore string

	// Guard locks the row of a term until the transaction ends, so that no later
	// term is granted meanwhile. GuardWrite, where a lock does not reach whoever
	// may grant one, writes the row as well; its parameters are the same.
	Guard, GuardWrite string
}

// Grant is a statement that may grant a term. It returns one row: whether it
// did (1 or 0), the token, for how long (µs) somebody else has the lock, and
// who. No row is "not granted". ByInsertID: it is a write that affects one row
// if it grants, with the token as its insert id.
type Grant struct {
	Text       string
	ByInsertID bool
}

// The statements that are the same on every engine.
const (
	LookLease = `SELECT owner, token, CASE WHEN owner IS NULL OR expires_at <= {now} THEN 0 ELSE expires_at - {now} END, holder
FROM {locks} WHERE name = $1`
	ReleaseLease = `UPDATE {locks} SET owner = NULL, expires_at = {now} WHERE name = $1 AND owner = $2`
	// RegisterWaiters lacks what is done when the row is there already.
	RegisterWaiters = `INSERT INTO {waiters} (name, waiter, holder, waiting, expires_at) VALUES {rows}`
	RegisterRow     = `({name}, $1, $2, {count}, {now} + $3)`
	GrantedLeases   = `SELECT owner, token FROM {locks} WHERE name IN ({names}) AND owner IN ({owners})`
	ReleasedLeases  = `SELECT name, CASE WHEN owner IS NULL THEN token WHEN owner IN ({owners}) THEN 0 ELSE -1 END FROM {locks} WHERE name IN ({names})`
	RemainingLease  = `SELECT owner, expires_at - {now} FROM {locks} WHERE name IN ({names}) AND owner IN ({owners})`
	// ListLeases lists the rows whose names are from one on and before another.
	// Parameters: the two names, limit, 1 for those too that nobody has.
	LeaseInfo  = `name, owner, token, (SELECT COALESCE(SUM(w.waiting), 0) FROM {waiters} w WHERE w.name = {locks}.name AND w.expires_at > {now}), CASE WHEN owner IS NULL OR expires_at <= {now} THEN 0 ELSE expires_at - {now} END, holder, granted_at, value, forced_at, COALESCE(forced_by, ''), COALESCE(forced_reason, '')`
	ListLeases = `SELECT ` + LeaseInfo + ` FROM {locks} WHERE name >= $1 AND name < $2 AND (owner IS NOT NULL AND expires_at > {now} OR $4 = 1) ORDER BY name LIMIT $3`
	// ForceLease takes the lock away from whoever has it. Its token moves, so
	// that what the holder was told is an earlier one. Parameters: name, by, reason,
	// the token that it has to have or 0, which is compared with a zero of the
	// column's type: in PostgreSQL's simple protocol a plain one makes it an integer.
	ForceLease = `UPDATE {locks} SET token = CASE WHEN token + 1 > {now} THEN token + 1 ELSE {now} END, owner = NULL, expires_at = {now},
 forced_at = {now}, forced_by = $2, forced_reason = $3 WHERE name = $1 AND owner IS NOT NULL AND (token = $4 OR 0 * token = $4)`
	// SayLease sets what a term's holder has to say. Parameters: name, owner, value.
	SayLease   = `UPDATE {locks} SET value = $3 WHERE name = $1 AND owner = $2 AND expires_at > {now}`
	WaitsLease = `SELECT name, CASE WHEN owner IS NULL OR expires_at <= {now} THEN 0 ELSE expires_at - {now} END
FROM {locks} WHERE name IN ({names})`
)
