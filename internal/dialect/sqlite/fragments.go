package sqlite

import "github.com/holdfast-go/holdfast/internal/dialect"

// The condition of LockDatabase is false, which SQLite finds after it has the lock.
var fragments = dialect.Fragments{
	Greatest:     "MAX",
	Contains:     "instr({c}, {p}) > 0",
	Integer:      "INTEGER",
	User:         "''",
	Ignore:       "ON CONFLICT ({key}) DO NOTHING",
	Update:       "ON CONFLICT ({key}) DO UPDATE SET",
	LockDatabase: "UPDATE {table} SET {column} = {column} WHERE 1 = 0",
}
