package outbox

import (
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// statements are those of an outbox.
//
// bump locks the key's row until the writer's transaction ends, so a key's messages become visible
// in the order of seq. Only the first message of a key that is waiting or dead may be published, and
// only if it is waiting. A relay has it by its attempt until due_at, and with it those behind it.
// take names the number of starts that was read, and changes it: so one of two relays takes the
// message, and the number of affected rows is the number of matched rows, whichever of them a driver
// counts. A message that was never started is behind another one, or free: its due_at only keeps it out
// of due, which would otherwise read all messages behind one that is held up each time.
type statements struct {
	bump, insert                        core.Stmt
	due, head, postpone, take, run      core.Stmt
	published, failed, bury, release    core.Stmt
	dead, requeue, discard, free, stats core.Stmt
	old, remove, removeKey              core.Stmt
}

// compile compiles the statements. $0 is the owner, except in the statements of all owners. The other
// parameters begin with the name of the outbox, and for one message go on with its key and seq. The comment
// of each lists those that follow.
func compile(d *dialect.Dialect, table func(string) string) statements {
	const (
		key     = ` WHERE owner = $0 AND name = $1 AND message_key = $2`
		message = key + ` AND seq = $3`
		mine    = message + ` AND attempt = $4 AND state = 1`
		columns = `owner, message_key, seq, state, id, topic, headers, body, starts, COALESCE(reason, ''), due_at, written_at`
	)
	r, f := d.Names(table), &d.Fragments
	x := func(name, text string) core.Stmt { return d.Compile("outbox."+name, r.Replace(text)) }
	return statements{
		// Of a key: without seq.
		bump: x("bump", `INSERT INTO {outbox_keys}`+f.As+` (owner, name, message_key, last_seq) VALUES ($0, $1, $2, {now}) `+
			f.OrUpdate("owner, name, message_key")+` last_seq = {greatest}(`+f.Old+`last_seq + 1, {now})`),
		// Of a key: id, topic, headers, body.
		insert: x("insert", `INSERT INTO {outbox} (owner, name, message_key, seq, id, topic, headers, body, state, starts, due_at, written_at)
VALUES ($0, $1, $2, (SELECT last_seq FROM {outbox_keys}`+key+`), $3, $4, $5, $6, 1, 0, {now}, {now})`),

		// Of all owners: limit (returns owner, key and seq).
		due: x("due", `SELECT owner, message_key, seq FROM {outbox} WHERE name = $1 AND state = 1 AND due_at <= {now} ORDER BY due_at LIMIT $2`),
		// Of a key: none. It returns the first waiting message's seq, starts, and for how long it is held in µs, and the seq
		// of the first dead one, 0 for none. The condition on state is twice there so that SQLite uses the partial index.
		head: x("head", `SELECT seq, starts, due_at - {now}, COALESCE((SELECT seq FROM {outbox}`+key+` AND state = 3 AND state IN (1, 3) ORDER BY seq LIMIT 1), 0)
FROM {outbox}`+key+` AND state = 1 AND state IN (1, 3) ORDER BY seq LIMIT 1`),
		// Those behind this message: seq of the last of them, pause (µs).
		postpone: x("postpone", `UPDATE {outbox} SET due_at = {now} + $5`+key+` AND seq > $3 AND seq <= $4 AND state = 1 AND starts = 0 AND due_at <= {now}`),
		// attempt, lease (µs), expected starts.
		take: x("take", `UPDATE {outbox} SET attempt = $4, due_at = {now} + $5, starts = starts + 1`+message+` AND state = 1 AND starts = $6 AND (due_at <= {now} OR starts = 0)`),
		// From this message on: limit.
		run: x("run", `SELECT `+columns+` FROM {outbox}`+key+` AND seq >= $3 AND state IN (1, 3) ORDER BY seq LIMIT $4`),

		// From this message on: last seq.
		published: x("published", `UPDATE {outbox} SET state = 2, due_at = {now}, attempt = NULL, reason = NULL`+key+` AND seq >= $3 AND seq <= $4 AND state = 1`),
		// attempt, pause (µs), reason.
		failed: x("failed", `UPDATE {outbox} SET due_at = {now} + $5, attempt = NULL, reason = $6`+mine),
		// attempt, reason.
		bury: x("bury", `UPDATE {outbox} SET state = 3, due_at = {now}, attempt = NULL, reason = $5`+mine),
		// attempt.
		release: x("release", `UPDATE {outbox} SET due_at = {now}, attempt = NULL, starts = starts - 1`+mine),

		// Of all owners: limit.
		dead:    x("dead", `SELECT `+columns+` FROM {outbox} WHERE name = $1 AND state = 3 AND `+d.Compare([]string{"due_at", "owner", "message_key", "seq"}, ">", "$2", "$3", "$4", "$5")+` ORDER BY due_at, owner, message_key, seq LIMIT $6`),
		requeue: x("requeue", `UPDATE {outbox} SET state = 1, due_at = {now}, starts = 0`+message+` AND state = 3`),
		// Those behind this message become due.
		free:    x("free", `UPDATE {outbox} SET due_at = {now}`+key+` AND seq > $3 AND state = 1 AND starts = 0`),
		discard: x("discard", `UPDATE {outbox} SET state = 4, due_at = {now}`+message+` AND state = 3`),
		// Of all owners: none (returns state, number, age of the oldest in µs).
		stats: x("stats", `SELECT state, COUNT(*), MAX({now} - written_at) FROM {outbox} WHERE name = $1 AND state IN (1, 3) GROUP BY state`),

		// Of all owners: state, age (µs), limit (returns owner, key and seq).
		old: x("old", `SELECT owner, message_key, seq FROM {outbox} WHERE name = $1 AND state = $2 AND due_at <= {now} - $3 ORDER BY due_at LIMIT $4`),
		// Up to this message: age (µs).
		remove: x("delete", `DELETE FROM {outbox}`+key+` AND seq <= $3 AND state IN (2, 4) AND due_at <= {now} - $4`),
		// The key's row, if this was its last message.
		removeKey: x("delete key", `DELETE FROM {outbox_keys}`+key+` AND last_seq = $3`),
	}
}
