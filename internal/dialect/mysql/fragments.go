package mysql

import "github.com/holdfast-go/holdfast/internal/dialect"

// A read at REPEATABLE READ is of the transaction's snapshot, unless it locks. Without the index a read of what has
// expired may lock the entries of other limits.
var fragments = dialect.Fragments{
	Greatest:       "GREATEST",
	Contains:       "LOCATE({p}, {c}) > 0",
	Integer:        "SIGNED",
	User:           "CURRENT_USER()",
	Ignore:         "ON DUPLICATE KEY UPDATE {column} = {column}",
	Update:         "ON DUPLICATE KEY UPDATE",
	ForUpdate:      " FOR UPDATE",
	ForNoKeyUpdate: " FOR UPDATE",
	ForShare:       " LOCK IN SHARE MODE",
	ForReread:      " FOR UPDATE",
	Force:          " FORCE INDEX ({index})",
}
