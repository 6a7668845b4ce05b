// Package sqlite is the dialect of SQLite.
package sqlite

import (
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// Dialect is the dialect of SQLite.
var Dialect = dialect.Dialect{
	Name: "sqlite",
	Capabilities: dialect.Capabilities{
		TransactionalDDL: true, Triggers: true, LockTimeouts: true, LockTimeoutUnit: time.Millisecond,
	},
	QuestionMarks: true,
	KeepPrepared:  true,
	QuoteRune:     '"',
	MaxIdent:      255,
	Now:           `CAST(unixepoch('subsec') * 1000000 AS INTEGER)`,

	Fence:     dialect.Fence{Local: true, Setting: busyTimeout, Kept: busyTimeout, Veto: veto},
	Records:   records,
	Enforce:   enforce,
	Leases:    leases,
	Tickets:   tickets,
	RowLocks:  rowLocks,
	Rows:      rows,
	Sweep:     sweep,
	Compare:   dialect.CompareRows,
	Fragments: fragments,
	Similar:   similar,
	Prove:     prove,
	Doctor:    doctor,

	Privileges: dialect.Privileges{None: "it has no accounts: who may read the file, and write it and its directory, decides"},

	Admission: admission,

	Classify:     classify,
	Disconnected: disconnected,
	RolledBack:   rolledBack,
}

// busyTimeout bounds the wait for the only write lock: BEGIN is deferred, and the claim is the
// first statement.
var busyTimeout = dialect.Setting{
	Remember: `PRAGMA busy_timeout`,
	Before:   func(d time.Duration) string { return `PRAGMA busy_timeout = ` + dialect.Millis(d) },
	After:    `PRAGMA busy_timeout = {was}`,
	Local:    true,
}

func classify(err error) dialect.Class {
	code := dialect.SQLiteCode(err)
	switch code {
	case 517: // BUSY_SNAPSHOT: another connection committed after this one's read
		return dialect.Retry
	case 531: // CONSTRAINT_COMMITHOOK: the veto
		return dialect.Gone
	case 1811: // CONSTRAINT_TRIGGER
		switch text := err.Error(); {
		case strings.Contains(text, dialect.Refusal):
			return dialect.Refused
		case strings.Contains(text, dialect.Unfenced):
			return dialect.Fenced
		}
	case 1555, 2067: // primary key, unique
		return dialect.Duplicate
	case 787: // CONSTRAINT_FOREIGNKEY
		return dialect.Referenced
	}
	switch code & 0xff {
	case 5, 6: // BUSY, LOCKED
		return dialect.Busy
	case 8:
		return dialect.ReadOnly
	case 3, 23: // PERM, AUTH
		return dialect.Denied
	case 1:
		switch text := err.Error(); {
		case strings.Contains(text, "no such table"):
			return dialect.NoTable
		case strings.Contains(text, "no transaction is active"):
			return dialect.Gone
		}
	}
	return dialect.Other
}

// rolledBack treats every error with a code as a rollback, except errors of the disk: a commit
// is a call within this process.
func rolledBack(err error) bool {
	switch code := dialect.SQLiteCode(err); code & 0xff {
	case 0, 10, 11, 13: // no code, IOERR, CORRUPT, FULL
		return false
	default:
		return true
	}
}

func disconnected(err error) bool { return dialect.SQLiteCode(err) == 0 }
