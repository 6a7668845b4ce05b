package dialect

import "strings"

// Register is the SQL of named values that are changed by compare-and-swap.
// {registers} is their table, {now} the clock. Every write moves the revision, so
// that the rows affected are the rows found, whatever a driver counts. Parameters
// in order:
//
//	Look:   name (returns the revision, 1 for a value that is not there, the value)
//	Newer:  name, revision (as Look, where the revision is higher)
//	Locked: name (as Look, but past the transaction's snapshot)
//	Make:   name (makes a row without a value, unless there is one)
//	Create: name, value (where there is none)
//	Swap:   name, revision, value
//	Delete: name, revision
type Register struct{ Look, Newer, Locked, Make, Create, Swap, Delete string }

// RegisterOf is the same on every engine but for what Make does with a row that
// is there, and for the end of a read that locks.
func RegisterOf(onConflict, lockClause string) Register {
	const (
		look   = `SELECT revision, CASE WHEN value IS NULL THEN 1 ELSE 0 END, value FROM {registers} WHERE name = $1`
		change = `UPDATE {registers} SET value = {value}, revision = revision + 1, changed_at = {now} WHERE name = $1`
	)
	to := func(value, where string) string { return strings.ReplaceAll(change, "{value}", value) + where }
	return Register{
		Look:   look,
		Newer:  look + ` AND revision > $2`,
		Locked: look + lockClause,
		Make:   `INSERT INTO {registers} (name, revision, changed_at) VALUES ($1, 0, {now})` + onConflict,
		Create: to(`$2`, ` AND value IS NULL`),
		Swap:   to(`$3`, ` AND revision = $2 AND value IS NOT NULL`),
		Delete: to(`NULL`, ` AND revision = $2 AND value IS NOT NULL`),
	}
}
