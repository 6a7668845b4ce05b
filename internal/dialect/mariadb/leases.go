package mariadb

import (
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// leases returns MySQL's SQL with two differences: MariaDB can bound the wait of a single
// statement, and an upsert returns its row.
func leases(l dialect.LeaseSQL) dialect.LeaseSQL {
	const free = `attempt IS NULL OR expires_at <= {now}`
	// Make inserts or acquires the row, and returns the current holder. Assignments run from
	// left to right: the condition free is valid until attempt is assigned. After that,
	// granted_at = {now} shows that this statement granted the term.
	l.Make = dialect.Grant{Text: `SET STATEMENT innodb_lock_wait_timeout = 0 FOR
INSERT INTO {locks} (owner, name, token, attempt, holder, granted_at, expires_at)
SELECT $0, $1, GREATEST(f.token + 1, {now}), $2, $4, {now}, {now} + $3 FROM {floor} f WHERE f.id = 1 LOCK IN SHARE MODE
ON DUPLICATE KEY UPDATE
 token = IF(` + free + `, GREATEST({locks}.token + 1, {now}), {locks}.token),
 terms = IF(` + free + `, {locks}.terms + 1, {locks}.terms),
 granted_at = IF(` + free + `, {now}, granted_at),
 holder = IF(` + free + `, $4, holder),
 value = IF(` + free + `, NULL, value),
 attempt = IF(` + free + `, $2, attempt),
 expires_at = IF(attempt <=> $2, IF(granted_at = {now}, {now} + $3, GREATEST(expires_at, {now} + $3)), expires_at)
RETURNING attempt <=> $2, token, GREATEST(expires_at - {now}, 0), holder`}
	// For a row that is known to exist, Take does not read the floor, because all statements
	// would contend for its one lock. The row already belongs to this attempt if an answer was
	// lost.
	const own = `attempt <=> $2 AND expires_at > {now}`
	l.Take = dialect.Grant{ByInsertID: true, Text: `SET STATEMENT innodb_lock_wait_timeout = 0 FOR
UPDATE {locks} SET token = LAST_INSERT_ID(IF(` + own + `, token, GREATEST(token + 1, {now}))), holder = $4, granted_at = {now},
 value = IF(` + own + `, value, NULL), terms = IF(` + own + `, terms, terms + 1), expires_at = IF(` + own + `, GREATEST(expires_at, {now} + $3), {now} + $3), attempt = $2
WHERE owner = $0 AND name = $1 AND (` + free + ` OR attempt = $2)`}
	l.MakeMany = `SET STATEMENT innodb_lock_wait_timeout = 0 FOR ` + l.MakeMany
	return l
}
