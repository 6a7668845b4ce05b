package dialect

import (
	"database/sql"
	"strings"
)

// Sweep is the SQL of the reaper. {records}, {locks} and {floor} are the tables. {picked} is the
// condition for the rows of a batch: a Group for each owner, joined by OR. In a Group, {owner} is
// the owner, {keys} the list of the keys or names, and {pairs} the list of names with their second
// columns.
type Sweep struct {
	// Isolation is the isolation level of a batch's transaction.
	Isolation sql.IsolationLevel
	// Batch is the default number of rows in a batch.
	Batch int
	// WaitsForRows: Write of records waits for rows that another session has locked. It is
	// false if the engine skips locked rows or has no row locks. Write of locks does not wait,
	// because a guarded transaction may lock its row for a long time, unless Leases.Alone says
	// that the engine skips no rows.
	WaitsForRows bool
	// Results turns expired results into tombstones. Keys deletes records with an expired key.
	Results, Keys SweepTask
	// Indexes are the indexes of records with which Results and Keys find their rows.
	Indexes []string
	// StagedResults and StagedKeys do the same with staged operations, their steps and events.
	StagedResults, StagedKeys SweepStaged
	// Locks deletes the rows of locks that have been free for a while.
	Locks SweepLocks
	// Waiters deletes the rows of dead waiters. Tickets deletes tickets that expired a while
	// ago.
	Waiters, Tickets SweepPairs
	// Similar deletes the rows of idempotency.Similar whose window is over. Its texts name the table {rows}.
	Similar SweepTask
	// LimitEntries deletes entries of limits that have ended and are to be forgotten. Find has the
	// expiry of the row to continue after as its second parameter.
	LimitEntries SweepPairs
	// Table deletes rows of the user's own tables.
	Table SweepTable
}

// SweepTask is the SQL for one kind of row. Parameters in order:
//
//	Count: cutoff (returns the rows and the oldest expiry, 0 for none)
//	Find:  cutoff, expiry, owner and key_hash of the row to continue after, limit
//	       (returns owner, key_hash and expiry, ordered by expiry, owner and key_hash)
//	Write: cutoff, then the rows in ascending order
//
// Find is a plain read, so Write tests its conditions again: a record that was claimed again
// or extended in between has another expiry.
type SweepTask struct{ Count, Find, Group, Write string }

// The conditions for rows that are due. They exclude a record with an open claim (state 1). A
// record that is deleted as a whole needs no tombstone first.
const (
	DueResults = `result_expires_at <= $1 AND state IN (2, 3) AND (key_expires_at IS NULL OR key_expires_at > $1)`
	DueKeys    = `key_expires_at <= $1 AND state IN (2, 3, 4, 5)`
)

// CountOfOwner counts the records and the staged operations of an owner, by the primary keys. Parameters:
// owner, how many of each to count at most.
const CountOfOwner = `SELECT (SELECT COUNT(*) FROM (SELECT 1 AS one FROM {records} WHERE owner = $0 LIMIT $1) counted) +
(SELECT COUNT(*) FROM (SELECT 1 AS one FROM {staged} WHERE owner = $0 LIMIT $1) counted)`

// Tombstone turns a record into a tombstone. The key, the fingerprint, the business id, the process
// and program that executed it and the rejected flag stay. Without an expiry of the result, the record leaves the index that the
// reaper searches.
const Tombstone = `state = CASE WHEN state IN (3, 5) THEN 5 ELSE 4 END, result = NULL, codec = NULL, request_id = NULL, result_expires_at = NULL`

// FindResults returns the task for Results. Only write differs between engines.
func FindResults(write string) SweepTask { return find("result_expires_at", DueResults, write) }

// FindKeys returns the task for Keys. Only write differs between engines.
func FindKeys(write string) SweepTask { return find("key_expires_at", DueKeys, write) }

// Indexes are those of engines whose partial indexes have no entry for NULL.
var Indexes = []string{"records_result_expires_at", "records_key_expires_at"}

// FindDue returns the task of an engine whose records have one index, on due_at: the earlier of both
// expiries. Its pages are in the order of due_at.
func FindDue(expiry, due, write string) SweepTask {
	t := find("due_at", `due_at <= $1 AND `+due, write)
	t.Count = strings.Replace(t.Count, "MIN(due_at)", "MIN("+expiry+")", 1)
	return t
}

func find(expiry, due, write string) SweepTask {
	r := strings.NewReplacer("{expiry}", expiry, "{due}", due)
	return SweepTask{
		Count: r.Replace(`SELECT COUNT(*), COALESCE(MIN({expiry}), 0) FROM {records} WHERE {due}`),
		// The first comparison with $2 lets the engine use the index; the second selects the
		// row.
		Find: r.Replace(`SELECT owner, key_hash, {expiry} FROM {records}
WHERE {due} AND {expiry} >= $2 AND ({expiry} > $2 OR owner > $3 OR owner = $3 AND key_hash > $4)
ORDER BY {expiry}, owner, key_hash LIMIT $5`),
		Group: `owner = {owner} AND key_hash IN ({keys})`,
		Write: r.Replace(write),
	}
}

// SweepStaged is the SQL for staged operations that have ended. Count and Find are those of SweepTask.
// Lock returns owner and key_hash of the rows of a batch that are still due, and locks them.
// Parameters: cutoff, then the rows. Parts writes their steps and events, then Write the operations
// themselves. Parameters: the rows.
type SweepStaged struct {
	Count, Find, Lock, Group, Write string
	Parts                           []string
}

// FindStaged returns the tasks. lock is the clause that locks rows and skips those that another
// session has locked, if the engine has one.
func FindStaged(lock string) (results, keys SweepStaged) {
	task := func(expiry, due, write string, parts ...string) SweepStaged {
		t := find(expiry, due, "")
		staged := func(s string) string { return strings.ReplaceAll(s, "{records}", "{staged}") }
		return SweepStaged{
			Count: staged(t.Count), Find: staged(t.Find), Group: t.Group, Write: write, Parts: parts,
			Lock: `SELECT owner, key_hash FROM {staged} WHERE ({picked}) AND ` + due + ` ORDER BY owner, key_hash` + lock,
		}
	}
	results = task("result_expires_at", DueResults,
		`UPDATE {staged} SET state = CASE WHEN state IN (3, 5) THEN 5 ELSE 4 END, request = NULL, result = NULL, reason = NULL, request_id = NULL, result_expires_at = NULL, version = version + 1 WHERE {picked}`,
		`UPDATE {steps} SET result = NULL WHERE {picked}`, `UPDATE {provider_events} SET body = NULL, kind = '' WHERE {picked}`)
	keys = task("key_expires_at", DueKeys, `DELETE FROM {staged} WHERE {picked}`, `DELETE FROM {steps} WHERE {picked}`, `DELETE FROM {provider_events} WHERE {picked}`)
	return results, keys
}

// SweepLocks is the SQL for the rows of locks. They have no index on their expiry, so the
// table is read in pages, in the order of owners and names. Due is the cutoff less the grace.
// Parameters in order:
//
//	Count: due (returns the rows and the oldest expiry, 0 for none)
//	Page:  owner and name to continue after, number of rows to skip (returns owner and name of
//	       the next row, the last of the page; no row: the table ends before)
//	Find:  due, owner and name to continue after, limit, owner and name of the last row of the
//	       page (returns owner, name, expiry and token, ordered by owner and name)
//	Rest:  as Find, for the last page: without its end
//	Raise: token (affects no row if the floor is as high already)
//	Floor: none (returns the token)
//	Write: due, the greatest token that Find found, then the rows in ascending order
//
// Write tests the token as well as the expiry. If the clock was set back, a later term of the
// same row may have expired too, and the floor does not cover it.
type SweepLocks struct{ Count, Page, Find, Rest, Raise, Floor, Group, Write string }

// DueLocks is the condition for rows that Write may delete.
const DueLocks = `expires_at <= $1 AND token <= $2`

// FindLocks returns the statements. Only the comparison of rows and write differ between engines.
func FindLocks(compare Compare, write string) SweepLocks {
	key := []string{"owner", "name"}
	rest := `SELECT owner, name, expires_at, token FROM {locks}
WHERE expires_at <= $1 AND ` + compare(key, ">", "$2", "$3") + `{to} ORDER BY owner, name LIMIT $4`
	return SweepLocks{
		Count: `SELECT COUNT(*), COALESCE(MIN(expires_at), 0) FROM {locks} WHERE expires_at <= $1`,
		Page:  `SELECT owner, name FROM {locks} WHERE ` + compare(key, ">", "$1", "$2") + ` ORDER BY owner, name LIMIT 1 OFFSET $3`,
		Find:  strings.ReplaceAll(rest, "{to}", ` AND `+compare(key, "<=", "$5", "$6")),
		Rest:  strings.ReplaceAll(rest, "{to}", ""),
		Group: `owner = {owner} AND name IN ({keys})`,
		Raise: `UPDATE {floor} SET token = $1 WHERE id = 1 AND token < $1`,
		Floor: `SELECT token FROM {floor} WHERE id = 1`,
		Write: strings.ReplaceAll(write, "{due}", DueLocks),
	}
}

// SweepPairs is the SQL for rows whose key is an owner, a name and a second column. They are few
// and have no index on their expiry. {rows} is the table. Parameters in order:
//
//	Count: due (returns the rows and the oldest expiry, 0 for none)
//	Find:  due, the three columns of the row to continue after, limit (returns the three
//	       columns and the expiry, ordered by them)
//	Write: due, then the rows in ascending order
//
// Write tests the expiry again and skips locked rows: a waiter may have announced itself
// again, and a guarded transaction may have locked its ticket.
type SweepPairs struct{ Count, Find, Group, Write string }

// FindPairs returns the statements. The comparison of rows, group and write differ between
// engines; in them, {second} is the second column.
func FindPairs(second string, compare Compare, group, write string) SweepPairs {
	r := strings.NewReplacer("{second}", second)
	return SweepPairs{
		Count: `SELECT COUNT(*), COALESCE(MIN(expires_at), 0) FROM {rows} WHERE expires_at <= $1`,
		Find: r.Replace(`SELECT owner, name, {second}, expires_at FROM {rows}
WHERE expires_at <= $1 AND ` + compare([]string{"owner", "name", second}, ">", "$2", "$3", "$4") + ` ORDER BY owner, name, {second} LIMIT $5`),
		Group: r.Replace(group),
		Write: r.Replace(write),
	}
}

// FindLimitEntries returns the task of the reaper. group and write are those of FindPairs.
func FindLimitEntries(group, write string) SweepPairs {
	r := strings.NewReplacer("{second}", "id", "expires_at", "forget_at")
	return SweepPairs{
		Count: `SELECT COUNT(*), COALESCE(MIN(forget_at), 0) FROM {rows} WHERE forget_at <= $1`,
		// The first comparison with $2 lets the engine use the index; the second selects the row.
		Find: `SELECT owner, name, id, forget_at FROM {rows}
WHERE forget_at <= $1 AND forget_at >= $2 AND (forget_at > $2 OR owner > $3 OR owner = $3 AND (name > $4 OR name = $4 AND id > $5))
ORDER BY forget_at, owner, name, id LIMIT $6`,
		Group: r.Replace(group),
		Write: r.Replace(write),
	}
}

// History is the SQL for the log of reaper passes. It is the same on every engine. {sweeps} is
// the table and {now} the clock. Parameters in order:
//
//	Insert: id, duration of the pass (µs), holder, rows, more, tasks, error
//	Bound:  number of passes to keep, less one (returns the end of the oldest to keep)
//	Trim:   the end of the oldest pass to keep, the maximum age of a pass (µs)
var History = struct{ Insert, Bound, Trim string }{
	Insert: `INSERT INTO {sweeps} (id, began_at, ended_at, holder, cleared, more, tasks, error) VALUES ($1, {now} - $2, {now}, $3, $4, $5, $6, $7)`,
	Bound:  `SELECT ended_at FROM {sweeps} ORDER BY ended_at DESC LIMIT 1 OFFSET $1`,
	Trim:   `DELETE FROM {sweeps} WHERE ended_at < $1 OR ended_at < {now} - $2`,
}
