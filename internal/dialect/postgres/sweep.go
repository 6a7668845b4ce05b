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
	Indexes:   dialect.Indexes,
	Results: dialect.FindResults(picked("{records}", "owner, key_hash", dialect.DueResults) +
		`UPDATE {records} doomed SET ` + dialect.Tombstone + ` FROM picked WHERE doomed.owner = picked.owner AND doomed.key_hash = picked.key_hash AND {due}`),
	Keys: dialect.FindKeys(picked("{records}", "owner, key_hash", dialect.DueKeys) +
		`DELETE FROM {records} doomed USING picked WHERE doomed.owner = picked.owner AND doomed.key_hash = picked.key_hash AND {due}`),
	StagedResults: stagedResults,
	StagedKeys:    stagedKeys,
	Locks: dialect.FindLocks(dialect.CompareRows, picked("{locks}", "owner, name", dialect.DueLocks)+
		`DELETE FROM {locks} doomed USING picked WHERE doomed.owner = picked.owner AND doomed.name = picked.name AND {due}`),
	Waiters: dialect.FindPairs("waiter", dialect.CompareRows, pairs, clearPairs),
	Tickets: dialect.FindPairs("token", dialect.CompareRows, pairs, clearPairs),
	Similar: dialect.FindSimilar(picked("{rows}", "owner, similar_hash", dialect.DueSimilar) +
		`DELETE FROM {rows} doomed USING picked WHERE doomed.owner = picked.owner AND doomed.similar_hash = picked.similar_hash AND {due}`),
	LimitEntries: dialect.FindLimitEntries(pairs, clearPairs),
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

const (
	pairs      = `owner = {owner} AND (name, {second}) IN ({pairs})`
	clearPairs = `WITH picked AS MATERIALIZED (
 SELECT owner, name, {second} FROM {rows} WHERE ({picked}) AND expires_at <= $1 ORDER BY owner, name, {second} FOR UPDATE SKIP LOCKED
) DELETE FROM {rows} doomed USING picked p WHERE doomed.owner = p.owner AND doomed.name = p.name AND doomed.{second} = p.{second}`
)

func picked(table, key, due string) string {
	return `WITH picked AS MATERIALIZED (
 SELECT ` + key + ` FROM ` + table + ` WHERE ({picked}) AND ` + due + ` ORDER BY ` + key + ` FOR UPDATE SKIP LOCKED
) `
}

var stagedResults, stagedKeys = dialect.FindStaged(" FOR UPDATE SKIP LOCKED")
