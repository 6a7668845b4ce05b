// Package postgres is the dialect of PostgreSQL.
package postgres

import (
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// Dialect is the dialect of PostgreSQL.
var Dialect = dialect.Dialect{
	Name: "postgres",
	Capabilities: dialect.Capabilities{
		RowLocks: true, TransactionalDDL: true, DetectsInProgress: true, Triggers: true, SharedGuards: true, NamesBlockers: true, LockTimeouts: true, LockTimeoutUnit: time.Millisecond,
	},
	QuoteRune: '"',
	MaxIdent:  63,
	// now() does not advance within a transaction, so this uses clock_timestamp. A double
	// holds microseconds exactly until the year 2106, and is faster than the numeric that
	// extract returns.
	Now: `(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000)::bigint`,

	Fence: dialect.Fence{
		// PostgreSQL itself refuses statements after an error (25P02). So the fence only
		// bounds the wait, for this transaction alone.
		First: func(d time.Duration) string {
			return `SELECT pg_catalog.set_config('lock_timeout', '` + dialect.Millis(d) + `ms', true)`
		},
		OrFail: func(write string) string {
			return `WITH done AS (` + write + ` RETURNING 1) SELECT 1 / count(*) FROM done`
		},
		Untouched: "SQLSTATE 22012", // division by zero
	},
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
	Audit:     dialect.Audit{Lock: `SELECT CASE WHEN pg_catalog.pg_advisory_xact_lock({lockspace}) IS NULL THEN 0 ELSE 1 END`, SetsSession: true},
	Prove:     prove,
	Doctor:    doctor,

	Privileges:  privileges,
	SetOwner:    setOwner,
	RowSecurity: rowSecurity,

	Admission: admission,

	Classify:     classify,
	Disconnected: disconnected,
	RolledBack:   rolledBack,
}

func classify(err error) dialect.Class {
	switch state := dialect.SQLState(err); state {
	case "40001", "40P01", idleInTransaction, transactionTimeout:
		return dialect.Retry
	case "0A000":
		// A driver's statement cache can cause this right after a migration.
		if strings.Contains(err.Error(), "cached plan must not change result type") {
			return dialect.Retry
		}
	case "55P03", canceled:
		return dialect.Busy
	case "23505":
		return dialect.Duplicate
	case "23503", "23001":
		return dialect.Referenced
	case "42P01", "3F000":
		return dialect.NoTable
	case "25006":
		return dialect.ReadOnly
	case "42501":
		return dialect.Denied
	case "25P02":
		return dialect.Gone
	case refused:
		return dialect.Refused
	case unfenced:
		return dialect.Fenced
	case "57P01", "57P02", "57P03": // the server goes away
		return dialect.Cut
	case "":
		if endedInRollback(err) {
			return dialect.Gone
		}
	}
	return dialect.Other
}

// The SQLSTATEs of limits that the server enforces: an idle session in a transaction, a
// transaction that takes too long, and a canceled statement. The server stops the timers of
// the latter two, and holds off interrupts, before COMMIT writes its record.
const (
	idleInTransaction  = "25P03"
	transactionTimeout = "25P04"
	canceled           = "57014"
)

// rolledBack lists the errors that PostgreSQL raises before it writes the commit record. Class
// 08, 40003 and 57P0x (the server goes away) may occur after that.
func rolledBack(err error) bool {
	state := dialect.SQLState(err)
	switch state {
	case "":
		return endedInRollback(err) || notSent(err)
	case "40001", "40P01", "40002", "25P02", "55P03", "25006", "42P01", "3F000", "42501", "53300", "57P03", refused, unfenced,
		idleInTransaction, transactionTimeout, canceled:
		return true
	}
	// These are integrity errors, data errors, and exceptions raised by deferred triggers and
	// constraints.
	return strings.HasPrefix(state, "23") || strings.HasPrefix(state, "22") || strings.HasPrefix(state, "P0")
}

// endedInRollback recognizes pgx's error for a COMMIT that the server answered with the tag
// ROLLBACK: the function continued after an error.
func endedInRollback(err error) bool {
	return err != nil && strings.Contains(err.Error(), "commit unexpectedly resulted in rollback")
}

// notSent recognizes pgx's errors for statements that it did not send: rows of another
// statement are open on the connection, or the statements of a batch could not be prepared.
func notSent(err error) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	return strings.Contains(text, "conn busy") || strings.Contains(text, "error preprocessing batch (")
}

// disconnected reports an error without an answer of the server, or with an answer by which
// the server ended the session (57P01 to 57P03, class 08).
func disconnected(err error) bool {
	state := dialect.SQLState(err)
	return state == "" || strings.HasPrefix(state, "57P0") || strings.HasPrefix(state, "08")
}
