package dialect

import (
	"database/sql"
	"strings"
)

// Sweep is the SQL of the reaper. {records}, {locks} and {floor} are the tables,
// {keys} and {names} lists of parameters as long as the batch.
type Sweep struct {
	// Isolation is that of a batch's transaction.
	Isolation sql.IsolationLevel
	// Batch is how many rows a batch has unless the user says otherwise.
	Batch int
	// WaitsForRows: a Write of records waits for a row that another session has
	// locked. It is false where such rows are skipped, and where there are no
	// row locks. One of locks never waits: a guard may hold its row for long.
	WaitsForRows bool
	// Results turns results whose time is over into tombstones, Keys deletes
	// records whose keys' time is over.
	Results, Keys SweepTask
	// Locks deletes the rows of locks that nobody has had for a while.
	Locks SweepLocks
	// Waiters deletes the rows of those who waited and died, Claims the places
	// in lines that expired a while ago.
	Waiters, Claims SweepPairs
	// Table deletes rows of a table of the user's own.
	Table SweepTable
}

// SweepTask is the SQL of one kind of row. Parameters in order:
//
//	Count: cutoff (returns the rows and the oldest expiry, 0 for none)
//	Find:  cutoff, expiry and key_hash of the row to go on after, limit
//	       (returns key_hash and expiry, ordered by expiry and key_hash)
//	Write: cutoff, then the keys in ascending order
//
// Find is a plain read, so Write tests again what Find found: a record that
// was claimed anew, or given more time, in between has another expiry.
type SweepTask struct{ Count, Find, Write string }

// The rows that are due. A claimed record (state 1) is nobody's to touch. A
// record that goes as a whole needs no tombstone first.
const (
	DueResults = `body_expires_at <= $1 AND state IN (2, 3) AND (key_expires_at IS NULL OR key_expires_at > $1)`
	DueKeys    = `key_expires_at <= $1 AND state IN (2, 3, 4, 5)`
)

// Tombstone is what a record becomes: key, fingerprint, business id and whether
// it was rejected stay. Without an expiry it leaves the index in which the
// reaper looks for work.
const Tombstone = `state = CASE WHEN state IN (3, 5) THEN 5 ELSE 4 END, result = NULL, codec = NULL, body_expires_at = NULL`

// FindResults and FindKeys are the same on every engine; Write is not.
func FindResults(write string) SweepTask { return find("body_expires_at", DueResults, write) }

// FindKeys is to Keys what FindResults is to Results.
func FindKeys(write string) SweepTask { return find("key_expires_at", DueKeys, write) }

func find(expiry, due, write string) SweepTask {
	r := strings.NewReplacer("{expiry}", expiry, "{due}", due)
	return SweepTask{
		Count: r.Replace(`SELECT COUNT(*), COALESCE(MIN({expiry}), 0) FROM {records} WHERE {due}`),
		// The first comparison with $2 is for the index, the second for the row.
		Find: r.Replace(`SELECT key_hash, {expiry} FROM {records}
WHERE {due} AND {expiry} >= $2 AND ({expiry} > $2 OR key_hash > $3)
ORDER BY {expiry}, key_hash LIMIT $4`),
		Write: r.Replace(write),
	}
}

// SweepLocks is the SQL of the rows of locks. They have no index on their
// expiry, so the table is read in pages, in the order of the names. Due is the
// cutoff less the grace. Parameters in order:
//
//	Count: due (returns the rows and the oldest expiry, 0 for none)
//	Page:  name to go on after, how many rows to pass over (returns the name of
//	       the next one, the page's last; no row: the table ends before)
//	Find:  due, name to go on after, last name of the page, limit (returns name,
//	       expiry and token, ordered by name)
//	Raise: token (affects no row where the floor is as high)
//	Floor: none (returns the token)
//	Write: due, the greatest token that Find found, then the names in ascending order
//
// Write tests the token as well as the expiry: a later term of the same row may
// have expired too, if the clock was set back, and the floor does not cover it.
type SweepLocks struct{ Count, Page, Find, Raise, Floor, Write string }

// DueLocks are the rows that Write may delete.
const DueLocks = `expires_at <= $1 AND token <= $2`

// FindLocks is the same on every engine but for Write.
func FindLocks(write string) SweepLocks {
	return SweepLocks{
		Count: `SELECT COUNT(*), COALESCE(MIN(expires_at), 0) FROM {locks} WHERE expires_at <= $1`,
		Page:  `SELECT name FROM {locks} WHERE name > $1 ORDER BY name LIMIT 1 OFFSET $2`,
		Find: `SELECT name, expires_at, token FROM {locks}
WHERE expires_at <= $1 AND name > $2 AND name <= $3 ORDER BY name LIMIT $4`,
		Raise: `UPDATE {floor} SET token = $1 WHERE id = 1 AND token < $1`,
		Floor: `SELECT token FROM {floor} WHERE id = 1`,
		Write: strings.ReplaceAll(write, "{due}", DueLocks),
	}
}

// SweepPairs is the SQL of rows whose key has two columns; they have no index on
// their expiry, and are few. {rows} is the table, {pairs} a list of pairs as long
// as the batch, {names} their first halves. Parameters in order:
//
//	Count: due (returns the rows and the oldest expiry, 0 for none)
//	Find:  due, both columns of the row to go on after, limit (returns both
//	       columns and the expiry, ordered by them)
//	Write: due, then the pairs in ascending order
//
// Write tests the expiry again and passes over rows that are locked: a waiter may
// be heard of again, and a guarded transaction may hold its claim.
type SweepPairs struct{ Count, Find, Write string }

// FindPairs is the same on every engine but for Write, in which {second} is the
// key's second column.
func FindPairs(second, write string) SweepPairs {
	r := strings.NewReplacer("{second}", second)
	return SweepPairs{
		Count: `SELECT COUNT(*), COALESCE(MIN(expires_at), 0) FROM {rows} WHERE expires_at <= $1`,
		Find: r.Replace(`SELECT name, {second}, expires_at FROM {rows}
WHERE expires_at <= $1 AND name >= $2 AND (name > $2 OR {second} > $3) ORDER BY name, {second} LIMIT $4`),
		Write: r.Replace(write),
	}
}

// History is the SQL of the passes that were made; it is the same on every
// engine. {sweeps} is the table, {now} the clock. Parameters in order:
//
//	Insert: id, how long the pass took (µs), holder, rows, more, tasks, error
//	Bound:  how many to keep, less one (returns the end of the oldest to keep)
//	Trim:   the end of the oldest to keep, for how long to keep any (µs)
//	List:   limit
var History = struct{ Insert, Bound, Trim, List string }{
	Insert: `INSERT INTO {sweeps} (id, began_at, ended_at, holder, cleared, more, tasks, error) VALUES ($1, {now} - $2, {now}, $3, $4, $5, $6, $7)`,
	Bound:  `SELECT ended_at FROM {sweeps} ORDER BY ended_at DESC LIMIT 1 OFFSET $1`,
	Trim:   `DELETE FROM {sweeps} WHERE ended_at < $1 OR ended_at < {now} - $2`,
	List:   `SELECT began_at, ended_at, holder, cleared, more, tasks, error FROM {sweeps} ORDER BY ended_at DESC, id DESC LIMIT $1`,
}
