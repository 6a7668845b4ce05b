package dialect

import (
	"slices"
	"strconv"
	"strings"
)

// Audit is the SQL of the audit. {audit} is the table, {now} the clock, and {lockspace} the number of the
// chain's lock. Parameters in order:
//
//	Lock:   none (makes the transaction wait for another one that appends)
//	Head:   chain (returns seq and hash of the last row)
//	Tail:   chain (returns seq and hash of the last row that has one before it for each number, from the first
//	        row on: it reads the chain)
//	Self:   none (returns the clock, and the name of the session's user)
//	Insert: chain, seq, happened_at, actor, action, kind, owner, namespace, subject, reason, confirmed_by,
//	        before_state, after_state, hash, and session_name unless SetsSession
//	Page:   chain and seq to continue after, limit (returns chain, seq, happened_at, actor, session_name and
//	        the others of Insert)
//	Recent: chain, owner, subject, how many of the chain's last rows are read (returns happened_at, actor,
//	        session_name, action, reason, confirmed_by)
type Audit struct {
	// Lock is empty if Head, or the engine, makes the transaction wait.
	Lock                           string
	Head, Tail, Self, Insert, Page string
	Recent                         string
	// SetsSession: the default of session_name is the session's user, and no grant lets an account name
	// another one.
	SetsSession bool
	// PerOwner: each owner has a chain of its own, because a transaction has one shard. Otherwise there is
	// one chain, with the name "".
	PerOwner bool
}

// AuditBound is a seq that no chain reaches. A row with it or a later one was not written by Holdfast.
const AuditBound = 1 << 62

// auditInsert are the columns that an account may write where the database sets session_name.
var auditInsert = []string{"chain", "seq", "happened_at", "actor", "action", "kind", "owner", "namespace", "subject", "reason", "confirmed_by", "before_state", "after_state", "hash"}

const auditColumns = `chain, seq, happened_at, actor, session_name, action, kind, owner, namespace, subject, reason, confirmed_by, before_state, after_state, hash`

// NewAudit returns the SQL of the audit with the lock of the chain, the clause that reads the last
// committed row, and the session's user. setsSession
// is [Audit.SetsSession].
func NewAudit(lock, last, user string, compare Compare, setsSession bool) Audit {
	insert := auditInsert
	if !setsSession {
		insert = append(slices.Clone(insert), "session_name")
	}
	return Audit{
		SetsSession: setsSession,
		Lock:        lock,
		Head:        `SELECT seq, hash FROM {audit} WHERE chain = $1 ORDER BY seq DESC LIMIT 1` + last,
		Self:        `SELECT {now}, ` + user,
		Tail: `SELECT a.seq, a.hash FROM {audit} a WHERE a.chain = $1 AND a.seq < ` + strconv.Itoa(AuditBound) + ` AND NOT EXISTS (SELECT 1 FROM {audit} b WHERE b.chain = $1 AND b.seq = a.seq + 1)
ORDER BY a.seq LIMIT 1`,
		Insert: `INSERT INTO {audit} (` + strings.Join(insert, ", ") + `) VALUES (` + Params(len(insert)) + `)`,
		Page:   `SELECT ` + auditColumns + ` FROM {audit} WHERE ` + compare([]string{"chain", "seq"}, ">", "$1", "$2") + ` ORDER BY chain, seq LIMIT $3`,
		// There is no index on the subject, so the number of rows is bounded.
		Recent: `SELECT happened_at, actor, session_name, action, reason, confirmed_by
FROM (SELECT happened_at, actor, session_name, action, reason, confirmed_by, owner, subject FROM {audit} WHERE chain = $1 ORDER BY seq DESC LIMIT $4) recent
WHERE owner = $2 AND subject = $3`,
	}
}
