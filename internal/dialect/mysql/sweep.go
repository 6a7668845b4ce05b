package mysql

import (
	"database/sql"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// The writes go by the primary key, whatever the optimizer thinks of the
// index on the expiry: they lock the listed rows only, in the order of the
// key. DELETE takes an index hint in its form for several tables.
var sweep = dialect.Sweep{
	// Under REPEATABLE READ a key that another reaper has deleted meanwhile
	// locks the gap, and with it new claims.
	Isolation:    sql.LevelReadCommitted,
	Batch:        500,
	WaitsForRows: true,
	Results: dialect.FindResults(
		`UPDATE {records} FORCE INDEX (PRIMARY) SET ` + dialect.Tombstone + ` WHERE key_hash IN ({keys}) AND {due}`),
	Keys: dialect.FindKeys(
		`DELETE doomed FROM {records} AS doomed FORCE INDEX (PRIMARY) WHERE key_hash IN ({keys}) AND {due}`),
	// LIMIT keeps the optimizer from merging the derived table, which would
	// lose SKIP LOCKED; STRAIGHT_JOIN keeps it first.
	Locks: dialect.FindLocks(`DELETE doomed FROM (
 SELECT name FROM {locks} FORCE INDEX (PRIMARY) WHERE name IN ({names}) AND {due}
 ORDER BY name LIMIT 1000000 FOR UPDATE SKIP LOCKED
) picked STRAIGHT_JOIN {locks} doomed FORCE INDEX (PRIMARY) ON doomed.name = picked.name`),
	Waiters: dialect.FindPairs("waiter", clearPairs),
	Claims:  dialect.FindPairs("token", clearPairs),
}

// clearPairs has the names alone as well, for optimizers that make no range of
// pairs.
const clearPairs = `DELETE doomed FROM (
 SELECT name, {second} FROM {rows} FORCE INDEX (PRIMARY) WHERE name IN ({names}) AND (name, {second}) IN ({pairs}) AND expires_at <= $1
 ORDER BY name, {second} LIMIT 1000000 FOR UPDATE SKIP LOCKED
) picked STRAIGHT_JOIN {rows} doomed FORCE INDEX (PRIMARY) ON doomed.name = picked.name AND doomed.{second} = picked.{second}`
