package dialect

import "strings"

// Audit is the SQL of the audit. {audit} is the table, {now} the clock, and {lockspace} the number of the
// chain's lock. Parameters in order:
//
//	Lock:   none (makes the transaction wait for another one that appends)
//	Head:   chain (returns seq and hash of the last row)
//	Self:   none (returns the clock, and the name of the session's user)
//	Insert: chain, seq, happened_at, actor, session_name, action, kind, owner, namespace, subject,
//	        reason, confirmed_by, before_state, after_state, hash
//	Page:   chain and seq to continue after, limit (returns the columns of Insert)
//	Recent: chain, owner, subject, how many of the chain's last rows are read (returns happened_at, actor,
//	        session_name, action, reason, confirmed_by)
type Audit struct {
	// Lock is empty if Head, or the engine, makes the transaction wait.
	Lock                     string
	Head, Self, Insert, Page string
	Recent                   string
	// PerOwner: each owner has a chain of its own, because a transaction has one shard. Otherwise there is
	// one chain, with the name "".
	PerOwner bool
}

const auditColumns = `chain, seq, happened_at, actor, session_name, action, kind, owner, namespace, subject, reason, confirmed_by, before_state, after_state, hash`

// NewAudit returns the SQL of the audit with the lock of the chain, the clause that reads the last
// committed row, and the session's user.
func NewAudit(lock, last, user string, compare Compare) Audit {
	return Audit{
		Lock:   lock,
		Head:   `SELECT seq, hash FROM {audit} WHERE chain = $1 ORDER BY seq DESC LIMIT 1` + last,
		Self:   `SELECT {now}, ` + user,
		Insert: `INSERT INTO {audit} (` + auditColumns + `) VALUES (` + Params(strings.Count(auditColumns, ",")+1) + `)`,
		Page:   `SELECT ` + auditColumns + ` FROM {audit} WHERE ` + compare([]string{"chain", "seq"}, ">", "$1", "$2") + ` ORDER BY chain, seq LIMIT $3`,
		// There is no index on the subject, so the number of rows is bounded.
		Recent: `SELECT happened_at, actor, session_name, action, reason, confirmed_by
FROM (SELECT happened_at, actor, session_name, action, reason, confirmed_by, owner, subject FROM {audit} WHERE chain = $1 ORDER BY seq DESC LIMIT $4) recent
WHERE owner = $2 AND subject = $3`,
	}
}
