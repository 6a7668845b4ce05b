package dialect

// The SQL of what waits for a person, or for a loop of a program, the same on all engines. Parameters in order:
//
//	BacklogNow:     none (returns the clock)
//	BacklogUnknown: limit (returns the name of operations that are unknown, how many, and since when the first)
//	BacklogStuck:   until, limit (returns the same of those that were due until then and wait for a worker)
//	BacklogBox:     name (returns the next name of an outbox)
//	BacklogDead:    name of the outbox (returns how many of its messages are dead, and since when the first)
const (
	BacklogNow = DayNow
	// The condition on state is twice there so that SQLite uses the partial index.
	BacklogUnknown = `SELECT operation, COUNT(*), MIN(due_at) FROM {staged} WHERE state = 6 AND state IN (1, 6) GROUP BY operation ORDER BY operation LIMIT $1`
	BacklogStuck   = `SELECT operation, COUNT(*), MIN(due_at) FROM {staged} WHERE state = 1 AND state IN (1, 6) AND due_at <= $1 GROUP BY operation ORDER BY operation LIMIT $2`
	BacklogBox     = DayBox
	BacklogDead    = `SELECT COUNT(*), COALESCE(MIN(due_at), 0) FROM {outbox} WHERE name = $1 AND state = 3`
)
