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
