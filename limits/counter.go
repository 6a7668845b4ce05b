package limits

import (
	"context"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// counterRow names the row that counts what is used of a limit, and the table of entries. All names are
// quoted, and any text may be in them. owner, reserved and version may be empty.
type counterRow struct {
	entries                            string
	table, owner                       string
	key                                []string
	limit, reserved, captured, version string
	// own: the row is in Holdfast's table.
	own bool
}

// ownRow is the row in Holdfast's table.
func ownRow(table, entries string) counterRow {
	return counterRow{
		entries: entries, table: table, owner: "owner", key: []string{"name", "limit_key"},
		limit: "limit_amount", reserved: "reserved", captured: "captured", own: true,
	}
}

// counter is the SQL of the row of a limit. Its parameters are the owner, if the row names it, then
// those listed here, then the columns of the key:
//
//	reserve, take: amount (if it fits)
//	change:        what is added to reserved (unless there is no such column) and to captured
//	set:           limit (if what is used fits)
//	read:          none (returns limit, reserved, captured and what of reserved has expired). For a row
//	               that is not Holdfast's, after the key: owner and name of the limits, key of the limit
//	lock:          none (returns limit, reserved and captured, and locks the row)
//
// In reserve and take, the condition decides on the row as it is when the statement has its lock,
// not as the transaction has read it. No term of it can overflow, because what is used never exceeds the
// limit.
type counter struct{ reserve, take, change, set, read, lock string }

// counterOf returns the statements of a row.
func counterOf(d *dialect.Dialect, r counterRow) counter {
	n := 0
	param := func() string { n++; return "$" + strconv.Itoa(n) }
	number := func() string { return strings.ReplaceAll(d.Sweep.Table.IntegerParam, "{p}", param()) }
	where := func() string {
		var parts []string
		if r.owner != "" {
			parts = append(parts, r.owner+" = $0")
		}
		for _, c := range r.key {
			parts = append(parts, c+" = "+param())
		}
		return ` WHERE ` + strings.Join(parts, " AND ")
	}
	touch := ""
	if r.own {
		touch = `, changed_at = ` + d.Now
	}
	if r.version != "" {
		touch += ", " + r.version + " = " + r.version + " + 1"
	}
	used, reserved := r.captured, "0"
	if r.reserved != "" {
		used, reserved = r.captured+" + "+r.reserved, r.reserved
	}
	add := func(column string) string {
		n = 0
		p := number()
		return `UPDATE ` + r.table + ` SET ` + column + ` = ` + column + ` + ` + p + touch + where() +
			` AND ` + p + ` <= ` + r.limit + ` - ` + r.captured + ` - ` + reserved
	}
	c := counter{take: add(r.captured)}
	n = 0
	var set, least []string
	for _, column := range []string{r.reserved, r.captured} {
		if column != "" {
			sum := column + ` + ` + number()
			set, least = append(set, column+` = `+sum), append(least, ` AND `+sum+` >= 0`)
		}
	}
	c.change = `UPDATE ` + r.table + ` SET ` + strings.Join(set, ", ") + touch + where() + strings.Join(least, "")
	n = 0
	limit := number()
	c.set = `UPDATE ` + r.table + ` SET ` + r.limit + ` = ` + limit + touch + where() + ` AND ` + used + ` <= ` + limit
	n = 0
	c.lock = `SELECT ` + r.limit + `, ` + reserved + `, ` + r.captured + ` FROM ` + r.table + where() + d.Fragments.ForNoKeyUpdate
	n = 0
	end, entries := where(), `owner = $0 AND name = $1 AND limit_key = $2`
	if !r.own {
		entries = `owner = ` + param() + ` AND name = ` + param() + ` AND limit_key = ` + param()
	}
	c.read = `SELECT ` + r.limit + `, ` + reserved + `, ` + r.captured + `,
 (SELECT CAST(COALESCE(SUM(amount), 0) AS ` + d.Fragments.Integer + `) FROM ` + r.entries + ` WHERE ` + entries + ` AND state = 1 AND due_at <= ` + d.Now + `)
FROM ` + r.table + end
	if r.reserved != "" {
		c.reserve = add(r.reserved)
	}
	return c
}

// rowLock locks the row of a limit. begin takes the lock of the whole database, where no row can be locked.
type rowLock struct{ begin, lock core.Stmt }

// run locks the row with key, and scans it. It returns false if there is no row.
func (l rowLock) run(ctx context.Context, q core.Querier, dest, key []any) (found bool, err error) {
	if l.begin.Text != "" {
		if _, err := l.begin.Exec(ctx, q); err != nil {
			return false, err
		}
	}
	return l.lock.QueryRow(ctx, q, dest, key...)
}
