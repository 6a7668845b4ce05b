package dialect

import "time"

// LeaseSQL is the SQL of the lease locks. {locks} and {floor} are the tables and {now} the
// clock. A row is free if its attempt is NULL or its expiry has passed. attempt is the id of one
// attempt to acquire the lock, so it identifies the term that this attempt was granted. $0 is the
// owner of all keys of a statement. Parameters in order:
//
//	Make, Take: name, attempt, TTL (µs), holder
//	HandOver:   name, attempt, TTL (µs), holder, previous attempt
//	Look:       name (returns attempt, token, µs left, holder; no row: no lock)
//	MakeMany, TakeMany: holder, then {names}, attempts and TTLs: {rows} is a list of ManyRow,
//	            each with {name}, {attempt} and {ttl}
//	Granted:    {names} and as many {attempts} (returns attempt, token)
//	ReleaseMany: {names} and as many {attempts}, then waiter if ReleaseTells
//	Released:   {names} and as many {attempts} (returns name and a number: the token of a
//	            free row, 0 if an attempt of the list has it, -1 if another one has)
//	Release:    name, attempt, waiter (not counted among the waiters)
//	Rivals:     {names}, then waiter (returns name and 1)
//	Announce:   waiter, holder, TTL (µs), then name and count of each row
//	Renew:      TTL (µs), then {names} and as many {attempts}
//	Remaining:  {names} and as many {attempts} (returns attempt, µs left)
//	Waits:      {names} (returns name, attempt, token, µs left, 0 when free)
//	Guard:      name, token, attempt (returns whether the transaction's snapshot contains the
//	            term as this attempt has it, and the store, which may be NULL if it does not).
//	            Without an attempt, any attempt that has the term will do: see ResumeLease
type LeaseSQL struct {
	// Make inserts the row of a lock that has no row yet. If it returns no row, or an error of
	// class Duplicate, the row already exists. If it returns a row for an existing lock, it
	// did everything that Take does. If Make is empty, Take also makes the row.
	Make Grant
	// Take acquires a row that is free. It does not wait for a row lock: a row that a guarded
	// transaction has locked counts as held. An attempt that is sent twice finds its own term.
	Take Grant
	// TakeBound surrounds Take where it would wait anyway: SQLite has one write lock, and
	// every write takes it.
	TakeBound Setting
	// LookFirst: Make and Take wait for a locked row, so a read comes first, and they follow
	// only if the lock is free. Alone: one statement acquires or releases one lock, the
	// statements for several locks are empty, and Renew waits for locked rows: the engine skips
	// none.
	LookFirst, Alone bool
	// Spread is lockstmt.Batching's.
	Spread int
	// HandOver ends the term of one attempt and grants the next term to another attempt.
	HandOver Grant
	Look     string
	// Release ends a term. If ReleaseTells is set, it returns one row when it ended the term:
	// 1, and 1 if other processes wait for the lock or 0. Otherwise it is a write.
	Release      string
	ReleaseTells bool
	// MakeMany, TakeMany and ReleaseMany do the same for several locks at once, and skip
	// locked rows. MakeMany may fail as a whole (Duplicate) if another session inserts one of
	// the rows at the same time. If MakeMany is empty, TakeMany also makes rows. MakeMany and
	// TakeMany return attempt and token of the granted locks, or are writes; Granted then
	// returns them. If ReleaseTells is set, ReleaseMany returns attempt and 1 if others
	// wait or 0; otherwise it is a write. If it did not end all terms, Released returns the
	// state of each.
	MakeMany, TakeMany, Granted string
	ManyRow, ManyJoin           string
	ReleaseMany, Released       string
	// Announce writes the rows of waiters: {rows} is a list of AnnounceRow. Listen subscribes
	// the session to notifications on {channel}. Notify sends one; its parameters are the
	// channel name and a payload. Listen and Notify are empty if the engine has no
	// notifications.
	Announce, AnnounceRow string
	Listen, Notify        string

	// Wake is empty if the engine has no named locks. With notifications it only has Await.
	Wake Wake
	// Liveness is empty if the engine cannot tell that a session has ended.
	Liveness Liveness

	// Rivals returns a row for each of {names} that a process other than {waiter} waits for.
	Rivals string
	// PollMost is the longest interval at which a waiter reads its lock, if it is not 0.
	PollMost time.Duration

	// Renew extends live terms, and skips locked rows. If Renewed is set, it returns the
	// attempts of the extended terms.
	Renew            string
	Renewed          bool
	Remaining, Waits string
	// ManyBefore sets the isolation for the next statement, which affects many rows. At
	// REPEATABLE READ, such a statement on InnoDB waits even for rows that it does not name.
	ManyBefore string

	// Guard locks the row of a term until the transaction ends, so that no later term is
	// granted before that. It also returns the current store id of the tables. A plain read is
	// enough for that, because a change of the store (see Restore) changes all tokens.
	// GuardWrite also writes the row, for engines where another node may grant a term and does
	// not see the lock. Parameters: name, token.
	Guard, GuardWrite string
}

// Wake is the SQL of named locks, which a session holds until it ends. Their one parameter is the name.
//
//	Hold:  gets the lock (returns 1 if it has)
//	Wake:  releases it and gets it again behind those who wait for it (returns 1 if it has released
//	       it, and 1 if it has it again)
//	Await: waits for it for at most a minute, and releases it at once (returns 1 if another session
//	       had it, 1 if it got it, and 1 if it has released it). It may fail with Busy instead.
type Wake struct{ Hold, Wake, Await string }

// Liveness is the SQL of a lock that shows that a process lives: it ends with the session that
// has it. The Await of Wake waits for it.
//
//	Server:  returns a text that is the same for all sessions of a server
//	Hold:    name (returns 1 if the session has got the lock, and the number of the session)
//	Confirm: returns the number of the session
//	Ended:   name (returns 1 if no session has the lock, and what Server returns)
type Liveness struct{ Server, Hold, Confirm, Ended string }

// Grant is a statement that may grant a term. It returns one row: 1 or 0 for granted or not,
// the token, for how many µs another attempt still has the lock, and that attempt's holder. No row
// means "not granted". If ByInsertID is set, it is a write that affects one row when it
// grants, and the token is its insert id.
type Grant struct {
	Text       string
	ByInsertID bool
}

// StoreID is an expression that reads the store id of this set of tables.
const StoreID = `(SELECT store FROM {floor} WHERE id = 1)`

// Statements that are the same on every engine.
const (
	LookLease = `SELECT attempt, token, CASE WHEN attempt IS NULL OR expires_at <= {now} THEN 0 ELSE expires_at - {now} END, holder
FROM {locks} WHERE owner = $0 AND name = $1`
	ReleaseLease = `UPDATE {locks} SET attempt = NULL, expires_at = {now} WHERE owner = $0 AND name = $1 AND attempt = $2`
	// AnnounceWaiters does not include the handling of a row that already exists.
	AnnounceWaiters = `INSERT INTO {waiters} (owner, name, waiter, holder, waiting, expires_at) VALUES {rows}`
	AnnounceRow     = `($0, {name}, $1, $2, {count}, {now} + $3)`
	GrantedLeases   = `SELECT attempt, token FROM {locks} WHERE owner = $0 AND name IN ({names}) AND attempt IN ({attempts})`
	ReleasedLeases  = `SELECT name, CASE WHEN attempt IS NULL THEN token WHEN attempt IN ({attempts}) THEN 0 ELSE -1 END FROM {locks} WHERE owner = $0 AND name IN ({names})`
	RemainingLease  = `SELECT attempt, expires_at - {now} FROM {locks} WHERE owner = $0 AND name IN ({names}) AND attempt IN ({attempts})`
	// listLeases lists rows of one owner, or of all: {after} is the condition for the rows after
	// an owner and a name. Parameters: these two ($0 and $1), the names to begin with and to end
	// before, the limit, and 1 to include free locks.
	LeaseInfo  = `owner, name, attempt, token, (SELECT COALESCE(SUM(w.waiting), 0) FROM {waiters} w WHERE w.owner = {locks}.owner AND w.name = {locks}.name AND w.expires_at > {now}), CASE WHEN attempt IS NULL OR expires_at <= {now} THEN 0 ELSE expires_at - {now} END, holder, granted_at, CASE WHEN attempt IS NOT NULL AND expires_at > {now} THEN value END, forced_at, COALESCE(forced_by, ''), COALESCE(forced_reason, ''), terms, expires_at`
	listLeases = `SELECT ` + LeaseInfo + ` FROM {locks} WHERE {after} AND name >= $2 AND name < $3 AND (attempt IS NOT NULL AND expires_at > {now} OR $5 = 1) ORDER BY owner, name LIMIT $4`
	// ForceLease takes the lock away from its holder. It increases the token, so the holder's
	// token becomes an earlier one. Parameters: name, by, reason, and the expected token, or 0
	// for any. The comparison uses a zero of the column's type, because in PostgreSQL's simple
	// protocol a plain 0 makes the parameter an integer.
	ForceLease = `UPDATE {locks} SET token = CASE WHEN token + 1 > {now} THEN token + 1 ELSE {now} END, attempt = NULL, expires_at = {now},
 forced_at = {now}, forced_by = $2, forced_reason = $3 WHERE owner = $0 AND name = $1 AND attempt IS NOT NULL AND (token = $4 OR 0 * token = $4)`
	// ResumeLease gives a live term to another attempt, which renews it from then on. Parameters: name,
	// attempt, TTL (µs), holder, previous attempt, token.
	ResumeLease = `UPDATE {locks} SET attempt = $2, holder = $4, expires_at = {now} + $3
WHERE owner = $0 AND name = $1 AND attempt = $5 AND token = $6 AND expires_at > {now}`
	// SetLeaseValue sets the value of a term. Parameters: name, attempt, value.
	SetLeaseValue = `UPDATE {locks} SET value = $3 WHERE owner = $0 AND name = $1 AND attempt = $2 AND expires_at > {now}`
	WaitsLease    = `SELECT name, attempt, token, CASE WHEN attempt IS NULL OR expires_at <= {now} THEN 0 ELSE expires_at - {now} END
FROM {locks} WHERE owner = $0 AND name IN ({names})`
	RivalWaiters = `SELECT name, 1 FROM {waiters} WHERE owner = $0 AND name IN ({names}) AND waiter <> {waiter} AND waiting > 0 AND expires_at > {now} GROUP BY name`
	// WaitedLeases is RivalWaiters with the rows only that were written since the present term began: a row
	// stays for {life}, and it may be that of a call which had the lock before.
	WaitedLeases = `SELECT w.name, 1 FROM {waiters} w JOIN {locks} l ON l.owner = w.owner AND l.name = w.name
WHERE w.owner = $0 AND w.name IN ({names}) AND w.waiter <> {waiter} AND w.waiting > 0 AND w.expires_at > {now} AND w.expires_at > l.granted_at + {life} GROUP BY w.name`
	// SharedLocks returns up to {limit} owners and keys under which locks of several kinds have
	// rows: a name is the kind, one byte, and the key. It reads the whole table.
	SharedLocks = `SELECT owner, SUBSTR(name, 2) FROM {locks} GROUP BY owner, SUBSTR(name, 2) HAVING COUNT(*) > 1 ORDER BY 1, 2 LIMIT {limit}`
	// NamedLocks returns which of {names} have a row.
	NamedLocks = `SELECT name FROM {locks} WHERE owner = $0 AND name IN ({names})`
)
