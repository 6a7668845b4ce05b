package postgres

import (
	"database/sql"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// The writes skip rows that other transactions have locked, so a batch never waits. Without
// FOR UPDATE, the outer statement would wait for a locked row and then delete it, judged by
// its old version.
var sweep = dialect.Sweep{
	Isolation: sql.LevelReadCommitted, // the server's default may be stricter
	Batch:     500,
	Results: dialect.FindResults(picked("{records}", "key_hash", "{keys}", dialect.DueResults) +
		`UPDATE {records} SET ` + dialect.Tombstone + ` WHERE key_hash IN (SELECT key_hash FROM picked) AND {due}`),
	Keys: dialect.FindKeys(picked("{records}", "key_hash", "{keys}", dialect.DueKeys) +
		`DELETE FROM {records} WHERE key_hash IN (SELECT key_hash FROM picked) AND {due}`),
	Locks: dialect.FindLocks(picked("{locks}", "name", "{names}", dialect.DueLocks) +
		`DELETE FROM {locks} WHERE name IN (SELECT name FROM picked) AND {due}`),
	Waiters: dialect.FindPairs("waiter", clearPairs),
	Tickets: dialect.FindPairs("token", clearPairs),
	Table: dialect.SweepTable{
		Write: `WITH picked AS MATERIALIZED (
 SELECT {keys} FROM {table} WHERE ({keys}) IN ({tuples}) AND {due} ORDER BY {keys} FOR UPDATE SKIP LOCKED
) DELETE FROM {table} doomed USING picked WHERE {same}`,
		Integers:     []string{"int2", "int4", "int8"},
		IntegerParam: `{p}::bigint`,
		Texts:        []string{"text", "varchar"},
		Bytes:        []string{"bytea"},
		Casts: map[string]dialect.Cast{
			"uuid":    {Read: `{c}::text`, Bind: `{p}::uuid`},
			"numeric": {Read: `{c}::text`, Bind: `{p}::numeric`},
			"date":    {Read: `to_char({c}, 'YYYY-MM-DD')`, Bind: `{p}::date`},
		},
		// Infinity is never due, so it is never read.
		Instant: &dialect.Expiry{
			Types: []string{"timestamptz"}, Read: `(extract(epoch FROM {c}) * 1000000)::bigint`,
			Left: `{c}`, Right: `(timestamptz 'epoch' + {p}::bigint * interval '1 microsecond')`,
		},
		UTC: &dialect.Expiry{
			Types: []string{"timestamp"}, Read: `(extract(epoch FROM {c}) * 1000000)::bigint`,
			Left: `{c}`, Right: `(timestamp 'epoch' + {p}::bigint * interval '1 microsecond')`,
		},
	},
}

const clearPairs = `WITH picked AS MATERIALIZED (
 SELECT name, {second} FROM {rows} WHERE (name, {second}) IN ({pairs}) AND expires_at <= $1 ORDER BY name, {second} FOR UPDATE SKIP LOCKED
) DELETE FROM {rows} doomed USING picked p WHERE doomed.name = p.name AND doomed.{second} = p.{second}`

func picked(table, key, list, due string) string {
	return `WITH picked AS MATERIALIZED (
 SELECT ` + key + ` FROM ` + table + ` WHERE ` + key + ` IN (` + list + `) AND ` + due + ` ORDER BY ` + key + ` FOR UPDATE SKIP LOCKED
) `
}
