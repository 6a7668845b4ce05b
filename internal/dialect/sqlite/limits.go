package sqlite

import "github.com/holdfast-go/holdfast/internal/dialect"

// Begin changes nothing, and takes the only write lock: a read before it would be of an earlier state.
// That the condition is false SQLite finds after it has the lock.
var limits = func() dialect.Limits {
	l := dialect.LimitsOf(dialect.CompareRows, ` ON CONFLICT (owner, name, id) DO NOTHING`, ` ON CONFLICT (owner, name, limit_key) DO NOTHING`,
		``, ``, ``, `INTEGER`)
	l.Begin = `UPDATE {limit_entries} SET state = state WHERE 1 = 0`
	return l
}()
