package dialect

import (
	"database/sql"
	"strings"
)

// Sweep is the SQL of the reaper on the idempotency records. {records} is the
// table, {keys} a list of parameters as long as the batch.
type Sweep struct {
	// Isolation is that of a batch's transaction.
	Isolation sql.IsolationLevel
	// Batch is how many rows a batch has unless the user says otherwise.
	Batch int
	// WaitsForRows: Write waits for a row that another session has locked. It
	// is false where such rows are skipped, and where there are no row locks.
	WaitsForRows bool
	// Results turns results whose time is over into tombstones, Keys deletes
	// records whose keys' time is over.
	Results, Keys SweepTask
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
	DueKeys    = `key_expires_at <= $1 AND state IN (2, 3, 4)`
)

// Tombstone is what a record becomes: its key and fingerprint stay. Without an
// expiry it leaves the index in which the reaper looks for work.
const Tombstone = `state = 4, result = NULL, body_expires_at = NULL`

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
