package mysql

import "github.com/holdfast-go/holdfast/internal/dialect"

// A conflict on the primary key locks the row alone, at every level. The assignments are made from
// left to right: the key and the expiry, which free tests, come last, and free stays as it is when the
// key has been assigned. NOW is that of the statement's begin: a wait for the row makes a window end
// later, never earlier.
var similar = dialect.Similar{OnConflict: `ON DUPLICATE KEY UPDATE
 claimed_at = IF(LAST_INSERT_ID(IF(` + free + `, 1, ` + lost + `)) = 1, {now}, claimed_at),
 op_key = IF(` + free + `, $5, op_key), attempt = IF(` + free + `, $6, attempt),
 key_hash = IF(` + free + `, $4, key_hash), expires_at = IF(` + free + `, {now} + $7, expires_at)`, Verdict: dialect.ByInsertID}

const free = `(key_hash = $4 OR expires_at <= {now})`
