package dialect

import "strings"

// Register is the SQL of named values that change by compare-and-swap. {registers} is the
// table and {now} the clock. Every write changes the revision, so the number of affected rows
// is the number of matched rows, whichever of them a driver counts. $0 is the owner. Parameters in
// order:
//
//	Read:   name (returns the revision, 1 if there is no value, the value)
//	Newer:  name, revision (as Read, if the revision is higher)
//	Locked: name (as Read, but reads past the transaction's snapshot)
//	Make:   name (inserts a row without a value, unless it exists)
//	Create: name, value (if there is no value)
//	Swap:   name, revision, value
//	Delete: name, revision
//	List:   the names to begin with and to end before, limit (returns name, revision, value of
//	        those that have a value, in the order of the names)
//	Revisions: the same (returns name, revision, 1 if there is no value, of all)
//	Some:   {names} (returns name, revision, 1 if there is no value, the value)
type Register struct {
	Read, Newer, Locked, Make, Create, Swap, Delete string
	List, Revisions, Some                           string
}

// RegisterOf returns the statements. Engines differ only in how Make handles an existing row,
// and in how a locking read ends.
func RegisterOf(onConflict, lockClause string) Register {
	const (
		read   = `SELECT revision, CASE WHEN value IS NULL THEN 1 ELSE 0 END, value FROM {registers} WHERE owner = $0 AND name = $1`
		within = ` FROM {registers} WHERE owner = $0 AND name >= $1 AND name < $2`
		page   = ` ORDER BY name LIMIT $3`
		change = `UPDATE {registers} SET value = {value}, revision = revision + 1, changed_at = {now} WHERE owner = $0 AND name = $1`
	)
	to := func(value, where string) string { return strings.ReplaceAll(change, "{value}", value) + where }
	return Register{
		Read:   read,
		Newer:  read + ` AND revision > $2`,
		Locked: read + lockClause,
		Make:   `INSERT INTO {registers} (owner, name, revision, changed_at) VALUES ($0, $1, 0, {now})` + onConflict,
		Create: to(`$2`, ` AND value IS NULL`),
		Swap:   to(`$3`, ` AND revision = $2 AND value IS NOT NULL`),
		Delete: to(`NULL`, ` AND revision = $2 AND value IS NOT NULL`),
		List:   `SELECT name, revision, value` + within + ` AND value IS NOT NULL` + page,

		Revisions: `SELECT name, revision, CASE WHEN value IS NULL THEN 1 ELSE 0 END` + within + page,
		Some:      `SELECT name, revision, CASE WHEN value IS NULL THEN 1 ELSE 0 END, value FROM {registers} WHERE owner = $0 AND name IN ({names}) ORDER BY name`,
	}
}
