package postgres

import "github.com/holdfast-go/holdfast/internal/dialect"

// At READ COMMITTED the condition is tested on the latest row, after a wait for its lock, and the row
// stays locked if the condition is false. At a higher level a row that has changed since the snapshot
// fails with 40001.
var similar = dialect.Similar{As: " AS i", OnConflict: `ON CONFLICT (owner, similar_hash) DO UPDATE SET
 key_hash = EXCLUDED.key_hash, op_key = EXCLUDED.op_key, attempt = EXCLUDED.attempt, claimed_at = {now}, expires_at = {now} + $7
WHERE i.key_hash = EXCLUDED.key_hash OR i.expires_at <= {now}`, Verdict: dialect.ByAffected}
