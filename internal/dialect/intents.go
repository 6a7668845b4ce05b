package dialect

import "strings"

// Intents is the SQL of the rows that tell operations under different keys which are one intent.
// {intents} is the table, {now} the clock and $0 the owner. Parameters in order:
//
//	Claim: intent_hash, namespace, operation, key_hash, op_key, attempt, window (µs)
//	Read:  intent_hash (returns key_hash, op_key, attempt, claimed_at and the µs until the end of
//	       the window)
//	Take:  intent_hash, key_hash, op_key, attempt, window (µs)
//	Find:  namespace, operation ("" = each), intent_hash to continue after, limit (returns
//	       intent_hash)
//
// Claim inserts the row, or takes it over if it names this key or its window is over. Whether it
// wins or loses, it locks the row until the transaction ends; Read and Take follow a Claim that lost.
type Intents struct {
	Claim, Read, Take string
	Verdict           Verdict
	// Find and Erase read and delete the rows of an owner. In Erase, {hashes} is a list.
	Find, Erase string
	// Sweep deletes rows whose window is over. Its texts name the table {rows}.
	Sweep SweepTask
}

// DueIntents is the condition for rows whose window is over.
const DueIntents = `expires_at <= $1`

// NewIntents returns the SQL with the parts that differ between engines: the end of Claim, that of
// Read, and the write of the sweep.
func NewIntents(insert, onConflict string, verdict Verdict, lock, sweep string) Intents {
	return Intents{
		Claim: `INSERT INTO {intents}` + insert + ` (owner, intent_hash, namespace, operation, key_hash, op_key, attempt, claimed_at, expires_at)
VALUES ($0, $1, $2, $3, $4, $5, $6, {now}, {now} + $7) ` + onConflict,
		Verdict: verdict,
		Read:    `SELECT key_hash, op_key, attempt, claimed_at, expires_at - {now} FROM {intents} WHERE owner = $0 AND intent_hash = $1` + lock,
		Take: `UPDATE {intents} SET key_hash = $2, op_key = $3, attempt = $4, claimed_at = {now}, expires_at = {now} + $5
WHERE owner = $0 AND intent_hash = $1`,
		Find: `SELECT intent_hash FROM {intents}
WHERE owner = $0 AND namespace = $1 AND operation = CASE WHEN $2 = '' THEN operation ELSE $2 END AND intent_hash > $3 ORDER BY intent_hash LIMIT $4`,
		Erase: `DELETE FROM {intents} WHERE owner = $0 AND intent_hash IN ({hashes})`,
		Sweep: FindIntents(sweep),
	}
}

// FindIntents returns the task for rows whose window is over. Only write differs between engines.
func FindIntents(write string) SweepTask {
	t := find("expires_at", DueIntents, write)
	for _, text := range []*string{&t.Count, &t.Find, &t.Group} {
		*text = strings.NewReplacer("{records}", "{rows}", "key_hash", "intent_hash").Replace(*text)
	}
	return t
}

// AlikeRecords returns the statement that reads the records of one owner, or of every owner, page by
// page in the order of their keys. Parameters: the owner ($0) and key_hash to continue after, limit.
func (d *Dialect) AlikeRecords(every bool) string {
	after := `owner = $0 AND key_hash > $1`
	if every {
		after = d.Compare([]string{"owner", "key_hash"}, ">", "$0", "$1")
	}
	return `SELECT owner, key_hash, namespace, operation, op_key, fingerprint_version, fingerprint, state, created_at, COALESCE(business_id, ''), {now}
FROM {records} WHERE ` + after + ` ORDER BY owner, key_hash LIMIT $2`
}
