package dialect

// The SQL of what the console shows by the hour, the same on all engines. Each reads the newest rows of a range
// of an index, and the ranges are numbers from the database's clock, so that every engine uses the index.
// Parameters in order:
//
//	DayNow:           none (returns the clock)
//	DayUnknown:       since, limit (returns when operations became unknown that still are)
//	DayStuck:         since, until, limit (returns when operations became due that still wait for a worker)
//	DayBox:           name (returns the next name of an outbox)
//	DayDead:          name of the outbox, since, limit (returns when messages died that are still dead)
//	DayInterventions: seq to continue before, limit (returns seq and time, of the chain "")
const (
	DayNow = `SELECT {now}`
	// The condition on state is twice there so that SQLite uses the partial index.
	DayUnknown       = `SELECT due_at FROM {staged} WHERE state = 6 AND state IN (1, 6) AND due_at >= $1 ORDER BY due_at DESC LIMIT $2`
	DayStuck         = `SELECT due_at FROM {staged} WHERE state = 1 AND state IN (1, 6) AND due_at >= $1 AND due_at <= $2 ORDER BY due_at DESC LIMIT $3`
	DayBox           = `SELECT name FROM {outbox} WHERE name > $1 ORDER BY name LIMIT 1`
	DayDead          = `SELECT due_at FROM {outbox} WHERE name = $1 AND state = 3 AND due_at >= $2 ORDER BY due_at DESC LIMIT $3`
	DayInterventions = `SELECT seq, happened_at FROM {audit} WHERE chain = '' AND seq < $1 ORDER BY seq DESC LIMIT $2`
)
