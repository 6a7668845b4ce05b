package mysql

import (
	"database/sql"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// The writes use the primary key, even if the optimizer prefers the index on the expiry. So
// they lock only the listed rows, in key order. DELETE accepts an index hint only in its
// multi-table form.
var sweep = dialect.Sweep{
	// At REPEATABLE READ, a key that another reaper has just deleted locks the gap, and blocks
	// new claims in it.
	Isolation:    sql.LevelReadCommitted,
	Batch:        500,
	WaitsForRows: true,
	Results: dialect.FindDue("result_expires_at", dialect.DueResults,
		`UPDATE {records} FORCE INDEX (PRIMARY) SET `+dialect.Tombstone+` WHERE ({picked}) AND {due}`),
	Keys: dialect.FindDue("key_expires_at", dialect.DueKeys,
		`DELETE doomed FROM {records} AS doomed FORCE INDEX (PRIMARY) WHERE ({picked}) AND {due}`),
	Indexes:       []string{"records_due_at"},
	StagedResults: stagedResults,
	StagedKeys:    stagedKeys,
	// LIMIT prevents the optimizer from merging the derived table, which would lose SKIP
	// LOCKED. STRAIGHT_JOIN keeps that table first.
	Locks: dialect.FindLocks(dialect.CompareColumns, `DELETE doomed FROM (
 SELECT owner, name FROM {locks} FORCE INDEX (PRIMARY) WHERE ({picked}) AND {due}
 ORDER BY owner, name LIMIT 1000000 FOR UPDATE SKIP LOCKED
) picked STRAIGHT_JOIN {locks} doomed FORCE INDEX (PRIMARY) ON doomed.owner = picked.owner AND doomed.name = picked.name`),
	Waiters:      dialect.FindPairs("waiter", dialect.CompareColumns, pairs, clearPairs),
	Tickets:      dialect.FindPairs("token", dialect.CompareColumns, pairs, clearPairs),
	Similar:      dialect.FindSimilar(`DELETE doomed FROM {rows} AS doomed FORCE INDEX (PRIMARY) WHERE ({picked}) AND {due}`),
	LimitEntries: dialect.FindLimitEntries(pairs, clearPairs),
	Table: dialect.SweepTable{
		Write: `DELETE doomed FROM (
 SELECT {keys} FROM {table} FORCE INDEX ({index}) WHERE {first} IN ({firsts}) AND ({keys}) IN ({tuples}) AND {due}
 ORDER BY {keys} LIMIT 1000000 FOR UPDATE SKIP LOCKED
) picked STRAIGHT_JOIN {table} doomed FORCE INDEX ({index}) ON {same}`,
		Integers:     []string{"tinyint", "smallint", "mediumint", "int", "bigint"},
		IntegerParam: `{p}`,
		Texts:        []string{"char", "varchar", "uuid"},
		Bytes:        []string{"binary", "varbinary"},
		Casts:        map[string]dialect.Cast{"date": {Read: `CAST({c} AS CHAR)`, Bind: `{p}`}},
		// A TIMESTAMP is stored as an instant, but compared in the session's time zone, where
		// one hour occurs twice in autumn. So the search includes two more hours, and the
		// found rows are then compared by the instant. A quotient would keep only four decimals
		// where the parameter is a literal; the product is exact.
		Instant: &dialect.Expiry{
			Types: []string{"timestamp"}, Read: `CAST(UNIX_TIMESTAMP({c}) * 1000000 AS SIGNED)`,
			Left: `UNIX_TIMESTAMP({c})`, Right: `{p} * 0.000001`,
			Before: `FROM_UNIXTIME({p} DIV 1000000 + 7200)`, After: `FROM_UNIXTIME({p} DIV 1000000 - 7200)`,
		},
		UTC: &dialect.Expiry{
			Types: []string{"datetime"}, Read: `TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', {c})`,
			Left: `{c}`, Right: `DATE_ADD(DATE_ADD(TIMESTAMP'1970-01-01 00:00:00', INTERVAL ({p} DIV 1000000) SECOND), INTERVAL ({p} % 1000000) MICROSECOND)`,
		},
	},
}

// pairs also lists the names alone, because some optimizers build no range from pairs.
const pairs = `owner = {owner} AND name IN ({keys}) AND (name, {second}) IN ({pairs})`

const clearPairs = `DELETE doomed FROM (
 SELECT owner, name, {second} FROM {rows} FORCE INDEX (PRIMARY) WHERE ({picked}) AND expires_at <= $1
 ORDER BY owner, name, {second} LIMIT 1000000 FOR UPDATE SKIP LOCKED
) picked STRAIGHT_JOIN {rows} doomed FORCE INDEX (PRIMARY) ON doomed.owner = picked.owner AND doomed.name = picked.name AND doomed.{second} = picked.{second}`

var stagedResults, stagedKeys = dialect.FindStaged(" FOR UPDATE SKIP LOCKED")
