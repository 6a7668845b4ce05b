package register

import (
	"strings"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

type statements struct {
	read, readNewer, readLocked   core.Stmt
	makeRow, create, swap, remove core.Stmt
	list, revisions               core.Stmt
	// The text of a statement with a list of names: {names}.
	some string
}

// compile compiles the statements. Every write changes the revision, so the number of affected rows
// is the number of matched rows, whichever of them a driver counts. $0 is the owner. The comment of
// each statement lists its parameters.
func compile(d *dialect.Dialect, table func(string) string) statements {
	const (
		read   = `SELECT revision, CASE WHEN value IS NULL THEN 1 ELSE 0 END, value FROM {registers} WHERE owner = $0 AND name = $1`
		within = ` FROM {registers} WHERE owner = $0 AND name >= $1 AND name < $2`
		page   = ` ORDER BY name LIMIT $3`
		change = `UPDATE {registers} SET value = {value}, revision = revision + 1, changed_at = {now} WHERE owner = $0 AND name = $1`
	)
	r := d.Names(table)
	x := func(name, text string) core.Stmt { return d.Compile("register."+name, r.Replace(text)) }
	to := func(name, value, where string) core.Stmt {
		return x(name, strings.ReplaceAll(change, "{value}", value)+where)
	}
	return statements{
		// name (returns the revision, 1 if there is no value, the value).
		read: x("read", read),
		// name, revision (as read, if the revision is higher).
		readNewer: x("newer", read+` AND revision > $2`),
		// name (as read, but reads past the transaction's snapshot).
		readLocked: x("locked", read+`{for share}`),
		// name (inserts a row without a value, unless it exists).
		makeRow: x("make", `INSERT INTO {registers} (owner, name, revision, changed_at) VALUES ($0, $1, 0, {now}) `+d.Fragments.OrIgnore("owner, name", "name")),
		// name, value (if there is no value).
		create: to("create", `$2`, ` AND value IS NULL`),
		// name, revision, value.
		swap: to("swap", `$3`, ` AND revision = $2 AND value IS NOT NULL`),
		// name, revision.
		remove: to("delete", `NULL`, ` AND revision = $2 AND value IS NOT NULL`),
		// The names to begin with and to end before, limit (returns name, revision, value of those that have a value,
		// in the order of the names).
		list: x("list", `SELECT name, revision, value`+within+` AND value IS NOT NULL`+page),
		// The same (returns name, revision, 1 if there is no value, of all).
		revisions: x("revisions", `SELECT name, revision, CASE WHEN value IS NULL THEN 1 ELSE 0 END`+within+page),
		// {names} (returns name, revision, 1 if there is no value, the value).
		some: r.Replace(`SELECT name, revision, CASE WHEN value IS NULL THEN 1 ELSE 0 END, value FROM {registers} WHERE owner = $0 AND name IN ({names}) ORDER BY name`),
	}
}
