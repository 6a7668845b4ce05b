// Package vitess is the dialect of Vitess: MySQL behind a router that plans each statement and sends
// it to the shard of its owner. It is the dialect of MySQL with statements that the router takes.
package vitess

import (
	"regexp"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/mysql"
)

// Dialect is the dialect of Vitess.
var Dialect = func() dialect.Dialect {
	d := mysql.Plain(mysql.Dialect, false)
	d.Name = "vitess"
	// The router has no READ UNCOMMITTED for one statement, and keeps a connection to one shard for
	// each setting of MySQL's that a session changes, which then counts as another shard of its
	// transactions. So nothing but the shards' own innodb_lock_wait_timeout bounds a wait.
	d.Capabilities.DetectsInProgress, d.Capabilities.LockTimeouts = false, false
	d.Capabilities.Triggers, d.Capabilities.NamesBlockers = false, false
	d.Doctor.Blocked, d.Doctor.Blockers = "", ""
	d.Doctor.Sizes = "" // the router asks one shard
	d.Records.PeekBefore = ""
	d.Records.Bound, d.RowLocks.MakeBound = dialect.Setting{}, dialect.Setting{}
	d.Fence.Setting = dialect.Setting{
		Before: func(time.Duration) string { return `SET SESSION autocommit = 0` },
		After:  `SET SESSION autocommit = 1`,
	}
	// A floor that VALUES reads is the one of the row's shard. An INSERT ... SELECT would read
	// any shard's.
	const lowest = `(SELECT token FROM {floor} WHERE id = 1 LOCK IN SHARE MODE)`
	d.Leases.Make.Text = `INSERT INTO {locks} (owner, name, token, attempt, holder, granted_at, expires_at)
VALUES ($0, $1, LAST_INSERT_ID(GREATEST(` + lowest + ` + 1, {now})), $2, $4, {now}, {now} + $3)`
	d.Tickets.Make = `INSERT INTO {locks} (owner, name, token, attempt, holder, granted_at, expires_at)
VALUES ($0, $1, ` + lowest + `, NULL, '', 0, {now}) ON DUPLICATE KEY UPDATE name = name`
	for _, text := range []*string{
		&d.Leases.Make.Text, &d.Leases.Take.Text, &d.Leases.HandOver.Text, &d.Leases.Renew,
		&d.Tickets.Make, &d.Tickets.Clear, &d.Tickets.Leave, &d.Tickets.Renew,
	} {
		bounded(text)
	}
	d.Audit.SetsSession, d.Audit.PerOwner = false, true // the session's user is the router's, for all
	d.Fresh = fresh
	d.Leases.Wake, d.Leases.Liveness = dialect.Wake{}, dialect.Liveness{} // named locks are not those of a MySQL server
	d.Privileges = dialect.Privileges{None: "its router takes no GRANT: the file that vttablet's --table-acl-config names decides, by the user that signed in to vtgate; docs/howto/privileges.md has one"}
	d.Admission = admission
	d.Classify = classify
	d.RolledBack = rolledBack
	return d
}()

// bounded makes the router end a statement that waits longer than a second. Its tablet then kills the
// connection to MySQL: a statement outside a transaction may have happened.
func bounded(text *string) {
	verb, rest, _ := strings.Cut(*text, " ")
	*text = verb + ` /*vt+ QUERY_TIMEOUT_MS=1000 */ ` + rest
}

// fresh keeps a tablet from answering a read outside of a transaction with the result of an equal one
// that runs already, and may have begun before the last commit.
func fresh(text string) string {
	if rest, reads := strings.CutPrefix(text, "SELECT "); reads {
		return "SELECT /*vt+ CONSOLIDATOR=disabled */ " + rest
	}
	return text
}

// classify adds what a tablet answers once it has ended a transaction, and what the router answers in
// a sharded keyspace of a table that the VSchema does not have: first that it does not know the
// table, and later that it does not know on which shard a row belongs.
func classify(err error) dialect.Class {
	switch number := dialect.MySQLNumber(err); {
	case ended(err):
		return dialect.Retry
	case number == 1105 && unknownTable.MatchString(err.Error()):
		return dialect.NoTable
	case number == 1173 && strings.Contains(err.Error(), "primary vindex"):
		return dialect.Unplaced
	}
	return mysql.Dialect.Classify(err)
}

var unknownTable = regexp.MustCompile(`table \S+ not found`)

func rolledBack(err error) bool { return ended(err) || mysql.Dialect.RolledBack(err) }

func ended(err error) bool {
	return dialect.MySQLNumber(err) == 1317 && (strings.Contains(err.Error(), ": ended at ") || strings.Contains(err.Error(), "transaction not found"))
}
