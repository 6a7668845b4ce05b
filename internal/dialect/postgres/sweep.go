package postgres

import (
	"database/sql"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// Rows that others have locked are skipped, so a batch waits for nobody.
// Without FOR UPDATE the outer statement would wait for a row in flight and
// then delete it by what its old version said.
var sweep = dialect.Sweep{
	Isolation: sql.LevelReadCommitted, // the server's default may be stricter
	Batch:     500,
	Results: dialect.FindResults(picked(dialect.DueResults) +
		`UPDATE {records} SET ` + dialect.Tombstone + ` WHERE key_hash IN (SELECT key_hash FROM picked) AND {due}`),
	Keys: dialect.FindKeys(picked(dialect.DueKeys) +
		`DELETE FROM {records} WHERE key_hash IN (SELECT key_hash FROM picked) AND {due}`),
}

func picked(due string) string {
	return `WITH picked AS MATERIALIZED (
 SELECT key_hash FROM {records} WHERE key_hash IN ({keys}) AND ` + due + ` ORDER BY key_hash FOR UPDATE SKIP LOCKED
) `
}
