// Package mysql is the dialect of MySQL. It also contains the parts that MariaDB shares with
// MySQL.
package mysql

import (
	"database/sql/driver"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// Dialect is the dialect of MySQL.
var Dialect = dialect.Dialect{
	Name: "mysql",
	Capabilities: dialect.Capabilities{
		RowLocks: true, DetectsInProgress: true, Triggers: true, SharedGuards: true, NamesBlockers: true, LockTimeouts: true, LockTimeoutUnit: time.Second,
	},
	QuestionMarks: true,
	KeepPrepared:  true,
	QuoteRune:     '`',
	MaxIdent:      64,
	// UNIX_TIMESTAMP(NOW(6)) is off by an hour during the daylight-saving fold. This
	// expression is correct in every session time zone.
	Now: `TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))`,

	Fence: dialect.Fence{
		// A deadlock (1213) rolls the transaction back, and the session would then autocommit
		// the next statement. With autocommit off, that statement opens another transaction,
		// which is never committed. The check at the end finds that the first transaction is
		// gone.
		Setting: dialect.Setting{
			Before: func(d time.Duration) string {
				return LockWait("@holdfast_lock_wait", max(d, time.Second)) + `, SESSION autocommit = 0`
			},
			After: `SET SESSION innodb_lock_wait_timeout = @holdfast_lock_wait, SESSION autocommit = 1`,
		},
		Kept:     kept("transaction_isolation"),
		Implicit: true,
		Survives: survives,
		Ends:     ends,
		Mark:     `SAVEPOINT holdfast_fence`,
		Check:    `RELEASE SAVEPOINT holdfast_fence`,
		// Outside a transaction, a savepoint does not persist.
		Alive: []string{`SAVEPOINT holdfast_alive`, `RELEASE SAVEPOINT holdfast_alive`},
	},
	Records:   records,
	Enforce:   enforce,
	Leases:    leases,
	Tickets:   tickets,
	RowLocks:  rowLocks,
	Rows:      rows,
	Sweep:     sweep,
	Compare:   dialect.CompareColumns,
	Fragments: fragments,
	Similar:   similar,
	Audit:     dialect.Audit{Last: ` LOCK IN SHARE MODE`, SetsSession: true},
	Prove:     prove,
	Doctor:    doctor,

	Privileges: privileges,

	Admission: admission,

	Classify:     classify,
	Disconnected: disconnected,
	RolledBack:   rolledBack,
}

// kept is the fence's setting for a session that keeps it. Such a session reads what is committed, as the
// rule about READ UNCOMMITTED has it for one transaction.
func kept(isolation string) dialect.Setting {
	return dialect.Setting{
		Before: func(d time.Duration) string {
			return LockWait("@holdfast_lock_wait", max(d, time.Second)) + `, @holdfast_isolation = @@SESSION.` + isolation +
				`, SESSION ` + isolation + ` = ` + raised(isolation) + `, SESSION autocommit = 0`
		},
		After: `SET SESSION innodb_lock_wait_timeout = @holdfast_lock_wait, SESSION ` + isolation + ` = @holdfast_isolation, SESSION autocommit = 1`,
	}
}

// MariaDBKept is MariaDB's. The variable has its old name there.
var MariaDBKept = kept("tx_isolation")

func classify(err error) dialect.Class {
	switch dialect.MySQLNumber(err) {
	case 1213, 1020, 3101: // deadlock; MariaDB's innodb_snapshot_isolation; MySQL's group replication at COMMIT
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
	case 1044, 1142, 1143, 1227, 1370: // access denied to a database, a table, a column, an operation, a routine
		return dialect.Denied
	case 1047: // a Galera node that is isolated or still joining
		return dialect.Unready
	case 1305: // the savepoint of the fence does not exist any more
		return dialect.Gone
	case refused:
		return dialect.Refused
	case unfenced:
		return dialect.Fenced
	case 1153: // a packet bigger than max_allowed_packet
		return dialect.Large
	case 1053, 1927, 3169, 4031: // shutdown; killed (MariaDB, MySQL); idle for longer than wait_timeout
		return dialect.Cut
	case 0:
		return classifyDriver(err)
	}
	return dialect.Other
}

// classifyDriver knows go-sql-driver's own errors by their texts, because a program on another engine must
// not link the driver.
func classifyDriver(err error) dialect.Class {
	switch {
	case err == nil:
		return dialect.Other
	case errors.Is(err, driver.ErrBadConn), strings.Contains(err.Error(), "invalid connection"):
		return dialect.Cut
	case strings.Contains(err.Error(), "packet for query is too large"):
		return dialect.Large
	}
	return dialect.Other
}

// rolledBack lists the errors by which InnoDB and the replication plugins say that COMMIT
// rolled everything back. 1180 (error during COMMIT) is excluded, because it was observed on
// writes that persisted. ErrBadConn means that the driver wrote no byte.
func rolledBack(err error) bool {
	switch dialect.MySQLNumber(err) {
	case 0:
		return errors.Is(err, driver.ErrBadConn)
	case 1213, 1020, 1205, 1047, 3101, 1290, 1792, 1836, 1062, 1146, 1142, 1143, 1040, refused, unfenced:
		return true
	}
	return false
}

// disconnected reports an error without an answer of the server, or the server's end of the
// session (shutdown, killed, idle session dropped, isolated Galera node).
func disconnected(err error) bool {
	switch dialect.MySQLNumber(err) {
	case 0, 1047, 1053, 1927, 3169, 4031:
		return true
	}
	return false
}
