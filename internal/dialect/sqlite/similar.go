package sqlite

import "github.com/holdfast-go/holdfast/internal/dialect"

// Claim writes, so it takes the only write lock before it looks.
var similar = dialect.Similar{OnConflict: `ON CONFLICT (owner, similar_hash) DO UPDATE SET
 key_hash = excluded.key_hash, op_key = excluded.op_key, attempt = excluded.attempt, claimed_at = excluded.claimed_at, expires_at = excluded.expires_at
WHERE key_hash = excluded.key_hash OR expires_at <= {now}`, Verdict: dialect.ByAffected}
