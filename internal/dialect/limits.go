package dialect

import (
	"context"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Limits is the SQL of the entries of limits: reservations and what was taken. {limit_entries} is the
// table and {now} the clock. $0 is the owner, $1 the name of the limits. A state is 1 reserved, 2
// captured, 3 voided, 4 expired. The other parameters in order:
//
//	Insert: id, limit's key, amount, captured, state, time until the expiry (µs, or LimitForever), time
//	        until the id is forgotten (µs, or NULL)
//	Entry:  id (returns the columns of an entry). Locked is the same, and reads past the transaction's
//	        snapshot
//	End:    id, state, captured, time until the id is forgotten (if it is reserved and has not expired)
//	Due:    limit's key, number (returns id and amount of reservations that have expired)
//	Expire: time until the id is forgotten, ids (those that are still reserved)
//	List:   limit's key, then state, due_at and id of the entry to continue after, number. ListOf is the
//	        same of the entries in that state
//	Old:    id to continue after, number (returns id of entries that have ended)
//	Delete: ids (those that have ended)
//	Make:   limit's key, limit (inserts the row of a limit, unless it exists)
//	Unused: key of a limit to continue after, number (returns the keys of limits without reservations)
//	Remove: keys of limits (those without reservations)
//
// An entry is written only by a transaction that has locked the row of its limit, so that statements on
// entries wait for nothing: for that row all writers take the same order. The inserts of one id for two
// limits are the exception, and one of them is refused.
//
// Begin takes the lock of the whole database, where no row can be locked. It has no parameters.
//
// End, Expire and LimitCounter.Set test again what their callers have read under the lock of the row: a
// caller that did not ends nothing twice.
type Limits struct {
	Insert                                          string
	Entry, Locked, End, Due, Expire, Begin          string
	List, ListOf, Old, Delete, Make, Unused, Remove string
	// Lock ends a read that locks the row of a limit. Sum is the type to which a sum is cast.
	Lock, Sum string
}

// LimitForever is the time until the expiry of a reservation that never expires. With any clock it is
// below the largest integer.
const LimitForever = 1 << 62

// LimitColumns are the columns of an entry. The last one is 1 if it is a reservation that has expired.
const LimitColumns = `id, limit_key, amount, captured, state, due_at, created_at, CASE WHEN state = 1 AND due_at <= {now} THEN 1 ELSE 0 END`

// LimitsOf returns the SQL with the parts that differ between engines: the end of an insert whose row
// may exist already, the index that Due has to use, the end of a locking
// read of entries, and of the row of a limit.
func LimitsOf(compare Compare, onConflict, onMake, force, lockEntry, lockRow, sum string) Limits {
	const (
		own   = ` WHERE owner = $0 AND name = $1`
		entry = own + ` AND id = $2`
		all   = own + ` AND limit_key = $2`
	)
	list := func(where string) string {
		return `SELECT ` + LimitColumns + ` FROM {limit_entries}` + force + all + where + ` ORDER BY state, due_at, id LIMIT $6`
	}
	return Limits{
		Insert: `INSERT INTO {limit_entries} (owner, name, id, limit_key, amount, captured, state, created_at, due_at, forget_at)
VALUES ($0, $1, $2, $3, $4, $5, $6, {now}, {now} + $7, {now} + $8)` + onConflict,
		Entry:  `SELECT ` + LimitColumns + ` FROM {limit_entries}` + entry,
		Locked: `SELECT ` + LimitColumns + ` FROM {limit_entries}` + entry + lockEntry,
		End:    `UPDATE {limit_entries} SET state = $3, captured = $4, due_at = {now}, forget_at = {now} + $5` + entry + ` AND state = 1 AND due_at > {now}`,
		Due:    `SELECT id, amount FROM {limit_entries}` + force + all + ` AND state = 1 AND due_at <= {now} ORDER BY due_at LIMIT $3` + lockEntry,
		Expire: `UPDATE {limit_entries} SET state = 4, due_at = {now}, forget_at = {now} + $2` + own + ` AND state = 1 AND id IN ({ids})`,
		List:   list(` AND ` + compare([]string{"state", "due_at", "id"}, ">", "$3", "$4", "$5")),
		ListOf: list(` AND state = $3 AND ` + compare([]string{"due_at", "id"}, ">", "$4", "$5")),
		Old:    `SELECT id FROM {limit_entries}` + own + ` AND id > $2 AND state <> 1 ORDER BY id LIMIT $3`,
		Delete: `DELETE FROM {limit_entries}` + own + ` AND state <> 1 AND id IN ({ids})`,
		Make: `INSERT INTO {limits} (owner, name, limit_key, limit_amount, reserved, captured, changed_at)
VALUES ($0, $1, $2, $3, 0, 0, {now})` + onMake,
		Unused: `SELECT limit_key FROM {limits}` + own + ` AND limit_key > $2 AND reserved = 0 ORDER BY limit_key LIMIT $3`,
		Remove: `DELETE FROM {limits}` + own + ` AND reserved = 0 AND limit_key IN ({ids})`,
		Lock:   lockRow,
		Sum:    sum,
	}
}

// LimitRow names the row that counts what is used of a limit, and the table of entries. All names are
// quoted, and any text may be in them. Owner, Reserved and Version may be empty.
type LimitRow struct {
	Entries                            string
	Table, Owner                       string
	Key                                []string
	Limit, Reserved, Captured, Version string
	// Own: the row is in Holdfast's table.
	Own bool
}

// OwnLimitRow is the row in Holdfast's table.
func OwnLimitRow(table, entries string) LimitRow {
	return LimitRow{
		Entries: entries, Table: table, Owner: "owner", Key: []string{"name", "limit_key"},
		Limit: "limit_amount", Reserved: "reserved", Captured: "captured", Own: true,
	}
}

// LimitCounter is the SQL of the row of a limit. Its parameters are the owner, if the row names it, then
// those listed here, then the columns of the key:
//
//	Reserve, Take: amount (if it fits)
//	Change:        what is added to reserved (unless there is no such column) and to captured
//	Set:           limit (if what is used fits)
//	Read:          none (returns limit, reserved, captured and what of reserved has expired). For a row
//	               that is not Holdfast's, after the key: owner and name of the limits, key of the limit
//	Lock:          none (returns limit, reserved and captured, and locks the row)
//
// In Reserve and Take, the condition decides on the row as it is when the statement has its lock,
// not as the transaction has read it. No term of it can overflow, because what is used never exceeds the
// limit.
type LimitCounter struct{ Reserve, Take, Change, Set, Read, Lock string }

// LimitCounter returns the statements of a row.
func (d *Dialect) LimitCounter(r LimitRow) LimitCounter {
	n := 0
	param := func() string { n++; return "$" + strconv.Itoa(n) }
	number := func() string { return strings.ReplaceAll(d.Sweep.Table.IntegerParam, "{p}", param()) }
	where := func() string {
		var parts []string
		if r.Owner != "" {
			parts = append(parts, r.Owner+" = $0")
		}
		for _, c := range r.Key {
			parts = append(parts, c+" = "+param())
		}
		return ` WHERE ` + strings.Join(parts, " AND ")
	}
	touch := ""
	if r.Own {
		touch = `, changed_at = ` + d.Now
	}
	if r.Version != "" {
		touch += ", " + r.Version + " = " + r.Version + " + 1"
	}
	used, reserved := r.Captured, "0"
	if r.Reserved != "" {
		used, reserved = r.Captured+" + "+r.Reserved, r.Reserved
	}
	add := func(column string) string {
		n = 0
		p := number()
		return `UPDATE ` + r.Table + ` SET ` + column + ` = ` + column + ` + ` + p + touch + where() +
			` AND ` + p + ` <= ` + r.Limit + ` - ` + r.Captured + ` - ` + reserved
	}
	c := LimitCounter{Take: add(r.Captured)}
	n = 0
	var set, least []string
	for _, column := range []string{r.Reserved, r.Captured} {
		if column != "" {
			sum := column + ` + ` + number()
			set, least = append(set, column+` = `+sum), append(least, ` AND `+sum+` >= 0`)
		}
	}
	c.Change = `UPDATE ` + r.Table + ` SET ` + strings.Join(set, ", ") + touch + where() + strings.Join(least, "")
	n = 0
	limit := number()
	c.Set = `UPDATE ` + r.Table + ` SET ` + r.Limit + ` = ` + limit + touch + where() + ` AND ` + used + ` <= ` + limit
	n = 0
	c.Lock = `SELECT ` + r.Limit + `, ` + reserved + `, ` + r.Captured + ` FROM ` + r.Table + where() + d.Limits.Lock
	n = 0
	end, entries := where(), `owner = $0 AND name = $1 AND limit_key = $2`
	if !r.Own {
		entries = `owner = ` + param() + ` AND name = ` + param() + ` AND limit_key = ` + param()
	}
	c.Read = `SELECT ` + r.Limit + `, ` + reserved + `, ` + r.Captured + `,
 (SELECT CAST(COALESCE(SUM(amount), 0) AS ` + d.Limits.Sum + `) FROM ` + r.Entries + ` WHERE ` + entries + ` AND state = 1 AND due_at <= ` + d.Now + `)
FROM ` + r.Table + end
	if r.Reserved != "" {
		c.Reserve = add(r.Reserved)
	}
	return c
}

// LimitClaim compiles the insert of an entry.
func (d *Dialect) LimitClaim(text string) RowClaim {
	return RowClaim{d, 9, text, d.Compile("limits.insert", text)}
}

// LimitLock locks the row of a limit.
type LimitLock struct{ begin, lock core.Stmt }

// LimitLock compiles the lock: Limits.Begin and LimitCounter.Lock.
func (d *Dialect) LimitLock(begin, lock string) LimitLock {
	return LimitLock{d.Compile("limits.begin", begin), d.Compile("limits.lock", lock)}
}

// Run locks the row with key, and scans it. It returns false if there is no row.
func (l LimitLock) Run(ctx context.Context, q core.Querier, dest, key []any) (found bool, err error) {
	if l.begin.Text != "" {
		if _, err := l.begin.Exec(ctx, q); err != nil {
			return false, err
		}
	}
	return l.lock.QueryRow(ctx, q, dest, key...)
}

// FindLimitEntries returns the task of the reaper. group and write are those of FindPairs.
func FindLimitEntries(group, write string) SweepPairs {
	r := strings.NewReplacer("{second}", "id", "expires_at", "forget_at")
	return SweepPairs{
		Count: `SELECT COUNT(*), COALESCE(MIN(forget_at), 0) FROM {rows} WHERE forget_at <= $1`,
		// The first comparison with $2 lets the engine use the index; the second selects the row.
		Find: `SELECT owner, name, id, forget_at FROM {rows}
WHERE forget_at <= $1 AND forget_at >= $2 AND (forget_at > $2 OR owner > $3 OR owner = $3 AND (name > $4 OR name = $4 AND id > $5))
ORDER BY forget_at, owner, name, id LIMIT $6`,
		Group: r.Replace(group),
		Write: r.Replace(write),
	}
}
