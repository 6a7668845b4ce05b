package sqlite

import "github.com/holdfast-go/holdfast/internal/dialect"

// A batch blocks all other writers, so it is small. The rows to write are found before it
// begins.
var sweep = dialect.Sweep{
	Batch:   100,
	Indexes: dialect.Indexes,
	Results: dialect.FindResults(
		`UPDATE {records} SET ` + dialect.Tombstone + ` WHERE ({picked}) AND {due}`),
	Keys: dialect.FindKeys(
		`DELETE FROM {records} WHERE ({picked}) AND {due}`),
	StagedResults: stagedResults,
	StagedKeys:    stagedKeys,
	Locks: dialect.FindLocks(dialect.CompareRows,
		`DELETE FROM {locks} WHERE ({picked}) AND {due}`),
	Waiters:      dialect.FindPairs("waiter", dialect.CompareRows, pairs, clearPairs),
	Tickets:      dialect.FindPairs("token", dialect.CompareRows, pairs, clearPairs),
	Similar:      dialect.FindSimilar(`DELETE FROM {rows} WHERE ({picked}) AND {due}`),
	LimitEntries: dialect.FindLimitEntries(pairs, clearPairs),
	Table: dialect.SweepTable{
		Write:        `DELETE FROM {table} WHERE ({keys}) IN (VALUES {tuples}) AND {due}`,
		Integers:     []string{"int"}, // or any type whose name contains it
		IntegerParam: `{p}`,
		Texts:        []string{"char", "text"},
		Bytes:        []string{"blob"},
		Untyped:      true,
		NoTime:       "SQLite has no type for times, and the same instant is written as different texts",
	},
}

const (
	pairs      = `owner = {owner} AND (name, {second}) IN (VALUES {pairs})`
	clearPairs = `DELETE FROM {rows} WHERE ({picked}) AND expires_at <= $1`
)

var stagedResults, stagedKeys = dialect.FindStaged("")
