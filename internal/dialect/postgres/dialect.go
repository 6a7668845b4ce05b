// Package postgres is the dialect of PostgreSQL.
package postgres

import (
	"errors"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// Dialect is PostgreSQL's.
var Dialect = dialect.Dialect{
	Name: "postgres",
	Capabilities: dialect.Capabilities{
		RowLocks: true, TransactionalDDL: true, SeesClaims: true, LockTimeoutUnit: time.Millisecond,
	},
	QuoteRune: '"',
	MaxIdent:  63,
	// clock_timestamp, not now(): now() stands still for the whole transaction.
	// A double holds microseconds exactly until the year 2106, and is faster than
	// the numeric of extract.
	Now: `(date_part('epoch', clock_timestamp()) * 1000000)::bigint`,

	Fence: dialect.Fence{
		// PostgreSQL refuses statements after an error by itself (25P02), so
		// only the wait is bounded, for this transaction alone.
		First: func(d time.Duration) string {
			return `SELECT set_config('lock_timeout', '` + dialect.Millis(d) + `ms', true)`
		},
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

	Settings:      `SELECT pg_is_in_recovery()::text`,
	CheckSettings: checkSettings,
	Classify:      classify,
	Disconnected:  disconnected,
	RolledBack:    rolledBack,
}

func checkSettings(row []string) error {
	if row[0] == "true" {
		return errors.New("this server is a standby (pg_is_in_recovery): connect to the primary, for instance with target_session_attrs=read-write")
	}
	return nil
}

func classify(err error) dialect.Class {
	switch state := dialect.SQLState(err); state {
	case "40001", "40P01":
		return dialect.Retry
	case "0A000":
		// The statement cache of a driver, right after a migration.
		if strings.Contains(err.Error(), "cached plan must not change result type") {
			return dialect.Retry
		}
	case "55P03":
		return dialect.Busy
	case "23505":
		return dialect.Duplicate
	case "23503", "23001":
		return dialect.Referenced
	case "42P01", "3F000":
		return dialect.NoTable
	case "25006":
		return dialect.ReadOnly
	case "25P02":
		return dialect.Gone
	case refused:
		return dialect.Refused
	case "":
		if endedInRollback(err) {
			return dialect.Gone
		}
	}
	return dialect.Other
}

// rolledBack lists what PostgreSQL raises before the commit record is written.
// Class 08, 40003 and 57P0x (the server goes away) may come after it.
func rolledBack(err error) bool {
	state := dialect.SQLState(err)
	switch state {
	case "":
		return endedInRollback(err)
	case "40001", "40P01", "40002", "25P02", "55P03", "25006", "42P01", "3F000", "42501", "53300", "57P03":
		return true
	}
	// Integrity, data and raised exceptions of deferred triggers and constraints.
	return strings.HasPrefix(state, "23") || strings.HasPrefix(state, "22") || strings.HasPrefix(state, "P0")
}

// endedInRollback is what pgx says when the server answers COMMIT with the tag
// ROLLBACK: the function went on after an error.
func endedInRollback(err error) bool {
	return err != nil && strings.Contains(err.Error(), "commit unexpectedly resulted in rollback")
}

// disconnected: no answer of the server's, or its farewell (57P01 to 57P03).
func disconnected(err error) bool {
	state := dialect.SQLState(err)
	return state == "" || strings.HasPrefix(state, "57P0") || strings.HasPrefix(state, "08")
}
