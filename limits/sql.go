package limits

import (
	"strings"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// statements are those on the entries of limits, reservations and what was taken, and on the row of a limit.
// An entry's state is 1 reserved, 2 captured, 3 voided, 4 expired.
//
// An entry is written only by a transaction that has locked the row of its limit, so that statements on
// entries wait for nothing: for that row all writers take the same order. The inserts of one id for two
// limits are the exception, and one of them is refused.
//
// end, expire and set test again what their callers have read under the lock of the row: a
// caller that did not ends nothing twice.
type statements struct {
	reserve, take, change, set, read core.Stmt
	lock                             rowLock
	insert                           dialect.RowClaim
	makeRow, entry, locked, end, due core.Stmt
	list, listOf, old, unused        core.Stmt
	// The texts of statements with a list of ids.
	expire, remove, removeLimits string
}

// forever is the time until the expiry of a reservation that never expires. With any clock it is
// below the largest integer.
const forever = 1 << 62

// columns are the columns of an entry. The last one is 1 if it is a reservation that has expired.
const columns = `id, limit_key, amount, captured, state, due_at, created_at, CASE WHEN state = 1 AND due_at <= {now} THEN 1 ELSE 0 END`

// compile compiles the statements. Those on entries begin with the owner ($0) and the name of the limits ($1).
// The comment of each lists the parameters that follow.
func compile(d *dialect.Dialect, table func(string) string, row counterRow) statements {
	const (
		of   = ` WHERE owner = $0 AND name = $1`
		one  = of + ` AND id = $2`
		all  = of + ` AND limit_key = $2`
		read = `SELECT ` + columns + ` FROM {limit_entries}`
	)
	r, f := d.Names(table), &d.Fragments
	x := func(name, text string) core.Stmt { return d.Compile("limits."+name, r.Replace(text)) }
	own := func(name, text string) core.Stmt { return d.Compile("limits."+name, text) } // has names of the program's
	force := f.ForceIndex("limit_entries_due_at")
	list := func(where string) core.Stmt {
		return x("list", read+force+all+where+` ORDER BY state, due_at, id LIMIT $6`)
	}
	begin := strings.NewReplacer("{table}", table("limit_entries"), "{column}", "state").Replace(f.LockDatabase)
	c := counterOf(d, row)
	return statements{
		reserve: own("reserve", c.reserve), take: own("take", c.take), change: own("change", c.change), set: own("set", c.set), read: own("read", c.read),
		// On SQLite, a read before the lock would be of an earlier state.
		lock: rowLock{own("begin", begin), own("lock", c.lock)},
		// id, limit's key, amount, captured, state, time until the expiry (µs, or forever), time until the id is
		// forgotten (µs, or NULL).
		insert: d.InsertClaim("limits.insert", r.Replace(`INSERT INTO {limit_entries} (owner, name, id, limit_key, amount, captured, state, created_at, due_at, forget_at)
VALUES ($0, $1, $2, $3, $4, $5, $6, {now}, {now} + $7, {now} + $8)`), "owner, name, id"),
		// limit's key, limit. It inserts the row of a limit, unless it exists.
		makeRow: x("make", `INSERT INTO {limits} (owner, name, limit_key, limit_amount, reserved, captured, changed_at)
VALUES ($0, $1, $2, $3, 0, 0, {now}) `+f.OrIgnore("owner, name, limit_key", "name")),
		// id. locked reads past the transaction's snapshot.
		entry:  x("entry", read+one),
		locked: x("locked", read+one+`{for no key update}`),
		// id, state, captured, time until the id is forgotten (if it is reserved and has not expired).
		end: x("end", `UPDATE {limit_entries} SET state = $3, captured = $4, due_at = {now}, forget_at = {now} + $5`+one+` AND state = 1 AND due_at > {now}`),
		// limit's key, number (returns id and amount of reservations that have expired).
		due: x("due", `SELECT id, amount FROM {limit_entries}`+force+all+` AND state = 1 AND due_at <= {now} ORDER BY due_at LIMIT $3{for no key update}`),
		// limit's key, then state, due_at and id of the entry to continue after, number. listOf is the same of the entries in
		// that state.
		list:   list(` AND ` + d.Compare([]string{"state", "due_at", "id"}, ">", "$3", "$4", "$5")),
		listOf: list(` AND state = $3 AND ` + d.Compare([]string{"due_at", "id"}, ">", "$4", "$5")),
		// id to continue after, number (returns id of entries that have ended).
		old: x("old", `SELECT id FROM {limit_entries}`+of+` AND id > $2 AND state <> 1 ORDER BY id LIMIT $3`),
		// key of a limit to continue after, number (returns the keys of limits without reservations).
		unused: x("unused", `SELECT limit_key FROM {limits}`+of+` AND limit_key > $2 AND reserved = 0 ORDER BY limit_key LIMIT $3`),
		// time until the id is forgotten, ids (those that are still reserved).
		expire: r.Replace(`UPDATE {limit_entries} SET state = 4, due_at = {now}, forget_at = {now} + $2` + of + ` AND state = 1 AND id IN ({ids})`),
		// ids (those that have ended).
		remove: r.Replace(`DELETE FROM {limit_entries}` + of + ` AND state <> 1 AND id IN ({ids})`),
		// keys of limits (those without reservations).
		removeLimits: r.Replace(`DELETE FROM {limits}` + of + ` AND reserved = 0 AND limit_key IN ({ids})`),
	}
}
