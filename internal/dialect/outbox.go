package dialect

// Outbox is the SQL of the messages to publish. {outbox} and {outbox_keys} are the tables and {now} the
// clock.
//
// Bump locks the key's row until the writer's transaction ends, so a key's messages become visible
// in the order of seq. Only the first message of a key that is waiting or dead may be published, and
// only if it is waiting. A relay has it by its attempt until due_at, and with it those behind it.
// Take names the number of starts that was read, and changes it: so one of two relays takes the
// message, and the number of affected rows is the number of matched rows, whichever of them a driver
// counts. A message that was never started is behind another one, or free: its due_at only keeps it out
// of Due, which would otherwise read all messages behind one that is held up each time.
//
// $0 is the owner, except in the statements that read all owners. The other parameters begin with
// the name of the outbox, and for one message go on with its key and seq. Then:
//
//	Bump:      (of a key: without seq)
//	Insert:    (of a key) id, topic, headers, body
//	Due:       limit (of all owners: returns owner, key and seq)
//	Head:      (of a key: returns its first waiting message's seq, starts, and for how long it is
//	           held in µs, and the seq of its first dead one, 0 for none)
//	Postpone:  seq, pause (µs) (of those behind this message, up to seq)
//	Take:      attempt, lease (µs), expected starts
//	Run:       limit (from this message on)
//	Published: last seq
//	Failed:    attempt, pause (µs), reason
//	Bury:      attempt, reason
//	Release:   attempt
//	Dead:      limit (of all owners)
//	Requeue, Discard: none
//	Free:      none (those behind this message are due)
//	Stats:     none (of all owners: returns state, number, age of the oldest in µs)
//	Old:       state, age (µs), limit (of all owners: returns owner, key and seq)
//	Delete:    age (µs) (up to this message)
//	DeleteKey: (the key's row, if this was its last message)
type Outbox struct {
	Bump, Insert                        string
	Due, Head, Postpone, Take, Run      string
	Published, Failed, Bury, Release    string
	Dead, Requeue, Discard, Free, Stats string
	Old, Delete, DeleteKey              string
}

// NewOutbox returns the SQL of the outbox with the parts that differ between engines: the alias of
// the table of keys in an insert, and the clause that raises last_seq of an existing key.
func NewOutbox(as, onConflict string) Outbox {
	const (
		key     = ` WHERE owner = $0 AND name = $1 AND message_key = $2`
		message = key + ` AND seq = $3`
		mine    = message + ` AND attempt = $4 AND state = 1`
		columns = `owner, message_key, seq, state, id, topic, headers, body, starts, COALESCE(reason, ''), due_at, written_at`
	)
	return Outbox{
		Bump: `INSERT INTO {outbox_keys}` + as + ` (owner, name, message_key, last_seq) VALUES ($0, $1, $2, {now}) ` + onConflict,
		Insert: `INSERT INTO {outbox} (owner, name, message_key, seq, id, topic, headers, body, state, starts, due_at, written_at)
VALUES ($0, $1, $2, (SELECT last_seq FROM {outbox_keys}` + key + `), $3, $4, $5, $6, 1, 0, {now}, {now})`,

		Due: `SELECT owner, message_key, seq FROM {outbox} WHERE name = $1 AND state = 1 AND due_at <= {now} ORDER BY due_at LIMIT $2`,
		// The condition on state is twice there so that SQLite uses the partial index.
		Head: `SELECT seq, starts, due_at - {now}, COALESCE((SELECT seq FROM {outbox}` + key + ` AND state = 3 AND state IN (1, 3) ORDER BY seq LIMIT 1), 0)
FROM {outbox}` + key + ` AND state = 1 AND state IN (1, 3) ORDER BY seq LIMIT 1`,
		Postpone: `UPDATE {outbox} SET due_at = {now} + $5` + key + ` AND seq > $3 AND seq <= $4 AND state = 1 AND starts = 0 AND due_at <= {now}`,
		Take:     `UPDATE {outbox} SET attempt = $4, due_at = {now} + $5, starts = starts + 1` + message + ` AND state = 1 AND starts = $6 AND (due_at <= {now} OR starts = 0)`,
		Run:      `SELECT ` + columns + ` FROM {outbox}` + key + ` AND seq >= $3 AND state IN (1, 3) ORDER BY seq LIMIT $4`,

		Published: `UPDATE {outbox} SET state = 2, due_at = {now}, attempt = NULL, reason = NULL` + key + ` AND seq >= $3 AND seq <= $4 AND state = 1`,
		Failed:    `UPDATE {outbox} SET due_at = {now} + $5, attempt = NULL, reason = $6` + mine,
		Bury:      `UPDATE {outbox} SET state = 3, due_at = {now}, attempt = NULL, reason = $5` + mine,
		Release:   `UPDATE {outbox} SET due_at = {now}, attempt = NULL, starts = starts - 1` + mine,

		Dead:    `SELECT ` + columns + ` FROM {outbox} WHERE name = $1 AND state = 3 ORDER BY due_at, owner, message_key, seq LIMIT $2`,
		Requeue: `UPDATE {outbox} SET state = 1, due_at = {now}, starts = 0` + message + ` AND state = 3`,
		Free:    `UPDATE {outbox} SET due_at = {now}` + key + ` AND seq > $3 AND state = 1 AND starts = 0`,
		Discard: `UPDATE {outbox} SET state = 4, due_at = {now}` + message + ` AND state = 3`,
		Stats:   `SELECT state, COUNT(*), MAX({now} - written_at) FROM {outbox} WHERE name = $1 AND state IN (1, 3) GROUP BY state`,

		Old:       `SELECT owner, message_key, seq FROM {outbox} WHERE name = $1 AND state = $2 AND due_at <= {now} - $3 ORDER BY due_at LIMIT $4`,
		Delete:    `DELETE FROM {outbox}` + key + ` AND seq <= $3 AND state IN (2, 4) AND due_at <= {now} - $4`,
		DeleteKey: `DELETE FROM {outbox_keys}` + key + ` AND last_seq = $3`,
	}
}
