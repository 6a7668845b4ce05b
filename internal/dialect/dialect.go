// Package dialect says what a dialect is. Each engine's package fills one
// Dialect: SQL text, the statements that fence a transaction, and the meaning
// of its errors; files of the same role bear the same name in each of them.
// What is more than one statement is run elsewhere.
//
// To add an engine: write its package, add it to the list in package holdfast
// (engine.go) with the banner it answers to, write its migrations, and run
// the conformance suite on it.
package dialect

import (
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Class says what an error means for the transaction in which it came.
type Class int

const (
	// Other is every error without a rule of its own.
	Other Class = iota
	// Retry: the engine rolled the whole transaction back; run all of it again.
	Retry
	// Busy: a bounded wait for a lock ended; the statement did nothing.
	Busy
	// Duplicate: a unique key other than the one that was claimed refused the row.
	Duplicate
	// NoTable: a table is missing.
	NoTable
	// ReadOnly: the server takes no writes (a replica, or a failover).
	ReadOnly
	// Gone: the transaction had ended before the statement came.
	Gone
	// Refused: a trigger of Enforce refused an update.
	Refused
	// Referenced: a foreign key refused the statement, or the commit.
	Referenced
	// Unready: the node of a cluster takes no statements for now; this one did nothing.
	Unready
)

// Capabilities are the engine's own ways that a caller may have to know.
type Capabilities struct {
	// RowLocks: SELECT ... FOR UPDATE locks rows.
	RowLocks bool
	// TransactionalDDL: DDL rolls back with its transaction; where false it
	// commits the open transaction first.
	TransactionalDDL bool
	// SeesClaims: an uncommitted claim of another session can be told from
	// any other wait, so "in progress" is known at once.
	SeesClaims bool
	// LockTimeoutUnit is the smallest bound on a lock wait; bounds are rounded up to it.
	LockTimeoutUnit time.Duration
	// MultiPrimary: other nodes take writes as well, and no lock on a row reaches them.
	MultiPrimary bool
}

// Dialect is one engine's SQL and errors.
type Dialect struct {
	Name         string
	Capabilities Capabilities
	// QuestionMarks: parameters are written ?, not $1.
	QuestionMarks bool
	// QuoteRune quotes identifiers; MaxIdent is their length limit in bytes.
	QuoteRune rune
	MaxIdent  int
	// Now is the database's wall clock in microseconds since 1970, UTC.
	Now string

	Fence    Fence
	Records  Records
	Register Register
	Enforce  Enforce
	Leases   Leases
	Claims   Claims
	RowLocks RowLocks
	Rows     Rows
	Sweep    Sweep
	Staged   Staged
	Doctor   Doctor

	// Settings reads what Open has to know, checked by CheckSettings.
	Settings      string
	CheckSettings func(row []string) error
	// Cluster, where the row of Settings is that of a node of a cluster, makes
	// the dialect that of one.
	Cluster func(d *Dialect, row []string)
	// Prefix begins every statement that is compiled.
	Prefix string

	// Classify maps a driver's error; nil and foreign errors are Other.
	Classify func(err error) Class
	// Disconnected: the connection is of no more use, another one may be.
	Disconnected func(err error) bool
	// RolledBack is the allow-list of errors which, at COMMIT or at an
	// autocommit write, prove that nothing was done. All else is unknown.
	RolledBack func(err error) bool
}

// Fence keeps a statement that follows a lost transaction from standing alone.
// The texts are complete statements; empty means none is needed.
type Fence struct {
	// Setting surrounds BEGIN to COMMIT on the pinned connection.
	Setting Setting
	// First runs first in the transaction, unless its first statement sets
	// the lock timeout itself.
	First func(lockTimeout time.Duration) string
	// Mark and Check prove that the transaction at the end is the one of the
	// beginning; Alive, that a caller's has not ended before it is joined.
	Mark, Check string
	Alive       []string
	// Veto registers on the driver's connection a function which forbids
	// commits for as long as it answers true, and returns its removal.
	Veto func(driverConn any, forbidden func() bool) (remove func(driverConn any), err error)
}

// Setting is a session setting for a while: Before changes it and After puts
// it back. Where the engine keeps no old value, Remember reads it and After has
// it as {was}.
type Setting struct {
	Remember string
	Before   func(lockTimeout time.Duration) string
	After    string
}

// Verdict is how a claim's statement tells won from lost.
type Verdict int

const (
	// ByAffected: one row affected is won.
	ByAffected Verdict = iota
	// ByInsertID: the statement sets LAST_INSERT_ID to Lost when it lost.
	ByInsertID
	// ByDuplicate: an error of class Duplicate is lost, success is won, and the
	// transaction goes on.
	ByDuplicate
)

// Won tells whether a claim that answered with r, and no error, won.
func (v Verdict) Won(r core.Result) bool {
	switch v {
	case ByInsertID:
		return r.InsertID != Lost
	case ByDuplicate:
		return true
	default:
		return r.Affected == 1
	}
}

// Lost is the insert id by which a claim says, on MySQL and MariaDB, that the
// row was there already: affected rows would be ambiguous under clientFoundRows.
const Lost = 1<<62 + 1

// Records is the SQL of the idempotency records. {records} is the table,
// {now} the clock. Parameters in order:
//
//	Look:   key_hash
//	Lock:   key_hash
//	Claim:  key_hash, namespace, tenant, operation, op_key, fingerprint,
//	        fingerprint_version, attempt, then with ClaimBounds the claim's lock
//	        timeout and the one to set afterwards ("" = as it was); it is a query
//	        then, of how many rows it inserted and the setting
//	ClaimSetting: the same without the last
//	Renew:  key_hash (deletes a record whose key has expired)
//	Finish: key_hash, attempt, state, result, body life, key life (µs or NULL),
//	        codec, business_id
type Records struct {
	Look, Lock, Claim, Renew, Finish string
	Verdict                          Verdict
	// ClaimSetting is Claim where its lock timeout stays, by affected rows.
	ClaimSetting string
	// FinishOrFail is Finish that fails where it touches no row, with the code
	// Untouched, so that what is sent behind it is skipped.
	FinishOrFail, Untouched string
	// Peek looks through the eyes of READ UNCOMMITTED where the engine needs
	// a setting for it, which must hold for the next statement only.
	PeekBefore string
	// ClaimBounds: Claim itself bounds its wait. Otherwise Bound surrounds it
	// in a caller's transaction; it surrounds Renew in any case.
	ClaimBounds bool
	Bound       Setting
}

// Look reads one record; it is the same on every engine.
const Look = `SELECT state, fingerprint, fingerprint_version, result, COALESCE(codec, ''), COALESCE(business_id, ''),
 CASE WHEN body_expires_at <= {now} THEN 1 ELSE 0 END, CASE WHEN key_expires_at <= {now} THEN 1 ELSE 0 END
FROM {records} WHERE key_hash = $1`

// Rows is the SQL of business rows: the caller's own tables.
type Rows struct {
	// Insert claims: table, columns and key columns come quoted.
	Insert  func(table string, columns, key []string) string
	Verdict Verdict
	// Tuples begins a list of tuples after IN.
	Tuples string
	// LockClause ends the read of the row that was there first.
	LockClause string
	// Columns and Uniques describe a table: see idempotency's table check.
	// Parameters: schema ("" = current) and table.
	Columns, Uniques string
	// Leads lists indexes with their first column, and whether a search for rows
	// by that column, where it is not NULL, may go through the index.
	Leads string
	// Exact says whether a column's type and collation tell all values
	// apart; otherwise it says why not.
	Exact func(typ, collation string) (ok bool, why string)
}

// Ident quotes an identifier.
func (d *Dialect) Ident(name string) string {
	q := string(d.QuoteRune)
	return q + strings.ReplaceAll(name, q, q+q) + q
}

// Idents quotes each.
func (d *Dialect) Idents(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = d.Ident(n)
	}
	return out
}

// Compile makes a statement of text.
func (d *Dialect) Compile(name, text string) core.Stmt {
	if d.Prefix != "" && text != "" {
		text = d.prefixed(text)
	}
	return core.Compile(name, text, d.QuestionMarks)
}

// prefixed joins settings for one statement with those that it has already.
func (d *Dialect) prefixed(text string) string {
	const set = "SET STATEMENT "
	if rest, has := strings.CutPrefix(text, set); has && strings.HasPrefix(d.Prefix, set) {
		return strings.TrimSuffix(d.Prefix, " FOR ") + ", " + rest
	}
	return d.Prefix + text
}

// Millis rounds d up to whole milliseconds, at least one.
func Millis(d time.Duration) string {
	return strconv.FormatInt(max(int64((d+time.Millisecond-1)/time.Millisecond), 1), 10)
}

// Params lists the parameters $1 to $n.
func Params(n int) string {
	p := make([]string, n)
	for i := range p {
		p[i] = "$" + strconv.Itoa(i+1)
	}
	return strings.Join(p, ", ")
}
