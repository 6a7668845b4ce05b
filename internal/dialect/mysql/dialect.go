// Package mysql is the dialect of MySQL, and holds what MariaDB shares with it.
package mysql

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// Dialect is MySQL's.
var Dialect = dialect.Dialect{
	Name: "mysql",
	Capabilities: dialect.Capabilities{
		RowLocks: true, SeesClaims: true, LockTimeoutUnit: time.Second,
	},
	QuestionMarks: true,
	QuoteRune:     '`',
	MaxIdent:      64,
	// UNIX_TIMESTAMP(NOW(6)) is an hour off in the daylight-saving fold; this
	// form is right in every session time zone.
	Now: `TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))`,

	Fence: dialect.Fence{
		// After a deadlock (1213) the transaction is gone and the session
		// would autocommit the next statement. With autocommit off that
		// statement opens another transaction, which is never committed: the
		// check at the end finds that the first one is gone.
		Setting: dialect.Setting{
			Before: func(d time.Duration) string {
				return LockWait("@holdfast_lock_wait", max(d, time.Second)) + `, SESSION autocommit = 0`
			},
			After: `SET SESSION innodb_lock_wait_timeout = @holdfast_lock_wait, SESSION autocommit = 1`,
		},
		Mark:  `SAVEPOINT holdfast_fence`,
		Check: `RELEASE SAVEPOINT holdfast_fence`,
		// Outside a transaction a savepoint is not kept.
		Alive: []string{`SAVEPOINT holdfast_alive`, `RELEASE SAVEPOINT holdfast_alive`},
	},
	Records:  records,
	Register: register,
	Enforce:  enforce,
	Leases:   leases,
	Claims:   claims,
	RowLocks: rowLocks,
	Rows:     rows,
	Sweep:    sweep,
	Staged:   staged,
	Doctor:   doctor,

	Settings:      `SELECT @@SESSION.autocommit, @@GLOBAL.read_only, @@SESSION.sql_mode`,
	CheckSettings: checkSettings,
	Classify:      classify,
	Disconnected:  disconnected,
	RolledBack:    rolledBack,
}

// refusedModes are modes of MariaDB's.
var refusedModes = map[string]string{
	"EMPTY_STRING_IS_NULL": "in which an empty tenant or holder cannot be stored",
	// ORACLE has it too. A lock would be granted to two.
	"SIMULTANEOUS_ASSIGNMENT": "in which an UPDATE does not assign from left to right as Holdfast's do",
}

func checkSettings(row []string) error {
	if row[0] != "1" {
		return errors.New("the session has autocommit off: take autocommit=0 out of the DSN or the server's settings, for a single statement of Holdfast's must commit by itself")
	}
	if row[1] != "0" {
		return errors.New("this server is read-only (a replica?): connect to the primary")
	}
	for mode, why := range refusedModes {
		if slices.Contains(strings.Split(row[2], ","), mode) {
			return errors.New("the session's sql_mode has " + mode + ", " + why + ": take it out of sql_mode")
		}
	}
	return nil
}

func classify(err error) dialect.Class {
	switch dialect.MySQLNumber(err) {
	case 1213, 1020: // deadlock; MariaDB with innodb_snapshot_isolation
		return dialect.Retry
	case 1205, 3572, 3024, 1969: // lock wait timeout, NOWAIT, execution time (MySQL, MariaDB)
		return dialect.Busy
	case 1062, 1586:
		return dialect.Duplicate
	case 1451, 1217:
		return dialect.Referenced
	case 1146, 1049:
		return dialect.NoTable
	case 1290, 1792, 1836:
		return dialect.ReadOnly
	case 1047: // a node of Galera's that is alone, or still joining
		return dialect.Unready
	case 1305: // the savepoint of the fence is not there any more
		return dialect.Gone
	case refused:
		return dialect.Refused
	}
	return dialect.Other
}

// rolledBack lists what InnoDB and the replication plugins answer when COMMIT
// undid everything. 1180 (error during COMMIT) is not among them: it was seen
// on writes that stood.
func rolledBack(err error) bool {
	switch dialect.MySQLNumber(err) {
	case 1213, 1020, 1205, 1047, 3101, 1290, 1792, 1836, 1062, 1146, 1142, 1040:
		return true
	}
	return false
}

// disconnected: no answer of the server's, or its farewell (shutdown, killed,
// idle session dropped, Galera's node alone).
func disconnected(err error) bool {
	switch dialect.MySQLNumber(err) {
	case 0, 1047, 1053, 1927, 3169, 4031:
		return true
	}
	return false
}
