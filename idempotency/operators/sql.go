package operators

import (
	"strings"

	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

type statements struct {
	touch, end, free, erase, reserved          core.Stmt
	propose, proposal, proposals, take, expire core.Stmt
	restore                                    restoreSQL
}

// compile compiles the statements. The comment of each lists its parameters. $0 is the owner.
func compile(d *dialect.Dialect, table func(string) string) statements {
	r := d.Names(table)
	x := func(name, text string) core.Stmt { return d.Compile(name, r.Replace(text)) }
	const proposal = `SELECT owner, id, action, payload, by_whom, session_name, reason, proposed_at, expires_at FROM {proposals} WHERE `
	return statements{
		restore: compileRestore(d, r),

		// Of a record of Do: key_hash. It locks the row.
		touch: x("operators.touch", `SELECT `+ledger.RecordSeen+`, created_at FROM {records} WHERE owner = $0 AND key_hash = $1{for update}`),
		// key_hash, state, result, codec, result TTL, key TTL (µs, or NULL).
		end: x("operators.close", `UPDATE {records} SET state = $2, result = $3, codec = $4, finished_at = {now}, result_expires_at = {now} + $5, key_expires_at = {now} + $6 WHERE owner = $0 AND key_hash = $1 AND state = 1`),
		// key_hash.
		free:  x("operators.free", `DELETE FROM {records} WHERE owner = $0 AND key_hash = $1 AND state = 1`),
		erase: x("operators.erase", `UPDATE {records} SET `+dialect.Tombstone+` WHERE owner = $0 AND key_hash = $1 AND state IN (2, 3)`),
		// What an owner has reserved of limits: created_at (µs), name and id of the one to continue after, until when (µs), limit.
		reserved: x("operators.reserved", `SELECT name, limit_key, id, amount, created_at FROM {limit_entries} WHERE owner = $0 AND state = 1 AND `+d.Compare([]string{"created_at", "name", "id"}, ">", "$1", "$2", "$3")+` AND created_at <= $4 ORDER BY created_at, name, id LIMIT $5`),

		// id, namespace, action, payload, by_whom, reason, TTL (µs).
		propose: x("proposals.insert", `INSERT INTO {proposals} (owner, id, namespace, action, payload, by_whom, session_name, reason, proposed_at, expires_at)
VALUES ($0, $1, $2, $3, $4, $5, {user}, $6, {now}, {now} + $7)`),
		// id, namespace.
		proposal: x("proposals.read", proposal+`owner = $0 AND id = $1 AND namespace = $2 AND expires_at > {now}`),
		// namespace, proposed_at (µs) and id of the one to continue after, limit (of all owners).
		proposals: x("proposals.list", proposal+`namespace = $1 AND expires_at > {now} AND `+d.Compare([]string{"proposed_at", "id"}, ">", "$2", "$3")+` ORDER BY proposed_at, id LIMIT $4`),
		// id. It deletes the proposal, unless it has expired.
		take:   x("proposals.take", `DELETE FROM {proposals} WHERE owner = $0 AND id = $1 AND expires_at > {now}`),
		expire: x("proposals.expire", `DELETE FROM {proposals} WHERE owner = $0 AND expires_at <= {now}`),
	}
}

// restoreSQL are the statements of AfterRestore.
type restoreSQL struct {
	most, floor, locks, claims, waiters, pending, park, intervene core.Stmt
}

// compileRestore compiles the statements. They are about the rows of all owners.
func compileRestore(d *dialect.Dialect, r *strings.Replacer) restoreSQL {
	x := func(name, text string) core.Stmt { return d.Compile("restore."+name, r.Replace(text)) }
	return restoreSQL{
		// Margin (µs). It returns the greatest of the clock plus the margin and the tokens in all tables.
		most: x("most", `SELECT {greatest}({now} + $1, (SELECT token FROM {floor} WHERE id = 1), COALESCE((SELECT MAX(token) FROM {locks}), 0),
 COALESCE((SELECT MAX(token) FROM {tickets}), 0), COALESCE((SELECT MAX(token) FROM {staged}), 0))`),
		// Token, store (16 bytes).
		floor: x("floor", `UPDATE {floor} SET token = $1, store = $2 WHERE id = 1 AND token < $1`),
		// Token, by, reason.
		locks: x("locks", `UPDATE {locks} SET forced_at = CASE WHEN attempt IS NULL THEN forced_at ELSE {now} END,
 forced_by = CASE WHEN attempt IS NULL THEN forced_by ELSE $2 END, forced_reason = CASE WHEN attempt IS NULL THEN forced_reason ELSE $3 END,
 token = $1, attempt = NULL WHERE token < $1`),
		claims:  x("tickets", `DELETE FROM {tickets}`),
		waiters: x("waiters", `DELETE FROM {waiters}`),
		// The operations that park parks.
		pending: x("pending", `SELECT owner, key_hash, namespace FROM {staged} WHERE state = 1`),
		// Token, reason.
		park: x("park", `UPDATE {staged} SET reason = CASE WHEN state = 1 THEN $2 ELSE reason END, restored = CASE WHEN state IN (1, 6) THEN 1 ELSE restored END,
 state = CASE WHEN state = 1 THEN 6 ELSE state END, attempt = NULL, token = $1, version = version + 1, moved_at = {now} WHERE token < $1`),
		intervene: x("intervene", ledger.Intervene),
	}
}
