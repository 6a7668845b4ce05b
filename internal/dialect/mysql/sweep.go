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
	Table: dialect.SweepTable{
		Write: `DELETE doomed FROM (
 SELECT {keys} FROM {table} FORCE INDEX ({index}) WHERE {first} IN ({firsts}) AND ({keys}) IN ({tuples}) AND {due}
 ORDER BY {keys} LIMIT 1000000 FOR UPDATE SKIP LOCKED
) picked STRAIGHT_JOIN {table} doomed FORCE INDEX ({index}) ON {same}`,
		Integers: []string{"tinyint", "smallint", "mediumint", "int", "bigint"},
		Texts:    []string{"char", "varchar", "uuid"},
		Bytes:    []string{"binary", "varbinary"},
		Casts:    map[string]dialect.Cast{"date": {Read: `CAST({c} AS CHAR)`, Bind: `{p}`}},
		// A TIMESTAMP is stored as an instant and compared in the session's zone,
		// where an hour comes twice in autumn: two hours more are searched, and
		// what was found is compared by the instant.
		Instant: &dialect.Expiry{
			Types: []string{"timestamp"}, Read: `CAST(UNIX_TIMESTAMP({c}) * 1000000 AS SIGNED)`,
			Left: `UNIX_TIMESTAMP({c})`, Right: `{p} / 1000000.0`,
			Before: `FROM_UNIXTIME({p} DIV 1000000 + 7200)`, After: `FROM_UNIXTIME({p} DIV 1000000 - 7200)`,
		},
		UTC: &dialect.Expiry{
			Types: []string{"datetime"}, Read: `TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', {c})`,
			Left: `{c}`, Right: `(TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ({p} DIV 1000000) SECOND + INTERVAL ({p} % 1000000) MICROSECOND)`,
		},
	},
}

// clearPairs has the names alone as well, for optimizers that make no range of
// pairs.
const clearPairs = `DELETE doomed FROM (
 SELECT name, {second} FROM {rows} FORCE INDEX (PRIMARY) WHERE name IN ({names}) AND (name, {second}) IN ({pairs}) AND expires_at <= $1
 ORDER BY name, {second} LIMIT 1000000 FOR UPDATE SKIP LOCKED
) picked STRAIGHT_JOIN {rows} doomed FORCE INDEX (PRIMARY) ON doomed.name = picked.name AND doomed.{second} = picked.{second}`
