package dialect

// Proposals is the SQL of proposed interventions. {proposals} is the table, {now} the clock. $0 is the
// owner, except in List. Parameters in order:
//
//	Insert: id, namespace, action, payload, by_whom, reason, TTL (µs)
//	Read:   id, namespace (returns the columns of List)
//	List:   namespace, limit (of all owners)
//	Take:   id (deletes it, unless it has expired)
//	Expire: none (deletes what has expired)
type Proposals struct{ Insert, Read, List, Take, Expire string }

// NewProposals returns the SQL with the session's user.
func NewProposals(user string) Proposals {
	const columns = `SELECT owner, id, action, payload, by_whom, session_name, reason, proposed_at, expires_at FROM {proposals} WHERE `
	return Proposals{
		Insert: `INSERT INTO {proposals} (owner, id, namespace, action, payload, by_whom, session_name, reason, proposed_at, expires_at)
VALUES ($0, $1, $2, $3, $4, $5, ` + user + `, $6, {now}, {now} + $7)`,
		Read:   columns + `owner = $0 AND id = $1 AND namespace = $2 AND expires_at > {now}`,
		List:   columns + `namespace = $1 AND expires_at > {now} ORDER BY proposed_at, id LIMIT $2`,
		Take:   `DELETE FROM {proposals} WHERE owner = $0 AND id = $1 AND expires_at > {now}`,
		Expire: `DELETE FROM {proposals} WHERE owner = $0 AND expires_at <= {now}`,
	}
}
