package dialect

import "strings"

// Similar is what differs between engines in the claim of idempotency.Similar. OnConflict ends
// the insert of its row: it takes over a row that names this key, or whose window is over. Whether it
// wins or loses, it locks the row until the transaction ends. As names the table.
type Similar struct {
	As, OnConflict string
	Verdict        Verdict
}

// DueSimilar is the condition for rows whose window is over.
const DueSimilar = `expires_at <= $1`

// FindSimilar returns the task for rows whose window is over. Only write differs between engines.
func FindSimilar(write string) SweepTask {
	t := find("expires_at", DueSimilar, write)
	for _, text := range []*string{&t.Count, &t.Find, &t.Group} {
		*text = strings.NewReplacer("{records}", "{rows}", "key_hash", "similar_hash").Replace(*text)
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
