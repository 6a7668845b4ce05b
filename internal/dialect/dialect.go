// Package dialect defines what an engine must provide. The package of each engine fills one
// Dialect: SQL text, the statements that fence a transaction, and the meaning of the engine's
// errors. Files with the same role have the same name in every engine. Where the engines answer a
// statement in different ways, a type such as Claim sends it and reads its answer. Other packages
// run longer sequences of statements.
//
// To add an engine: write its package, add it to the list in package holdfast (engine.go) with
// the banner that it recognizes, write its migrations, and run the conformance suite on it.
package dialect

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Class is the meaning of an error for the transaction in which it occurred.
type Class int

const (
	// Other is every error that no other class covers.
	Other Class = iota
	// Retry: the engine rolled back the whole transaction, or ended its session before it
	// received COMMIT. The whole transaction can run again.
	Retry
	// Busy: a limit on a lock wait or on the statement was reached. The statement had no
	// effect.
	Busy
	// Duplicate: a unique key other than the claimed one refused the row.
	Duplicate
	// NoTable: a table is missing.
	NoTable
	// Unplaced: the table is in a sharded keyspace whose VSchema has no entry for it, so that no
	// row can be inserted.
	Unplaced
	// ReadOnly: the server accepts no writes, because it is a replica or fails over.
	ReadOnly
	// Gone: the transaction had ended before the statement arrived.
	Gone
	// Refused: a trigger refused an update that did not change the version of the row, or a
	// procedure a version that is not the row's.
	Refused
	// Referenced: a foreign key refused the statement, or the commit.
	Referenced
	// Denied: the role lacks a privilege.
	Denied
	// Unready: a cluster node accepts no statements for now. This statement had no effect.
	Unready
	// Fenced: a trigger refused a write without the token of a live term.
	Fenced
	// Cut: the connection ended, or the driver gave it up, before the answer. What that means for a
	// COMMIT, RolledBack says.
	Cut
	// Large: the statement is larger than the driver or the server accepts.
	Large
)

// Capabilities describes the differences between engines that callers may need.
type Capabilities struct {
	// RowLocks: SELECT ... FOR UPDATE locks rows.
	RowLocks bool
	// TransactionalDDL: DDL rolls back with its transaction. If false, DDL first commits the
	// open transaction.
	TransactionalDDL bool
	// DetectsInProgress: a wait for another session's uncommitted claim can be distinguished
	// from any other wait, so "in progress" is known at once.
	DetectsInProgress bool
	// Triggers: Enforce of packages optimistic and fence works.
	Triggers bool
	// SharedGuards: transactions that guard leases of one shared lock run side by side. If false,
	// one waits for the other.
	SharedGuards bool
	// NamesBlockers: the server tells who blocks a session that waits for a lock, so that the errors of a
	// wait that is over can name those sessions.
	NamesBlockers bool
	// LockTimeouts: TxOptions.LockTimeout and a claim's wait end waits for locks. If false, only
	// the server's own setting does.
	LockTimeouts bool
	// LockTimeoutUnit is the smallest bound on a lock wait. Bounds are rounded up to it.
	LockTimeoutUnit time.Duration
	// MultiPrimary: other nodes accept writes too, and row locks do not reach them.
	MultiPrimary bool
}

// Dialect is one engine's SQL and errors.
type Dialect struct {
	Name         string
	Capabilities Capabilities
	// LockTimeout is the default lock timeout of the program's transactions; 0 means
	// core.DefaultLockTimeout.
	LockTimeout time.Duration
	// QuestionMarks: parameters are written as ? instead of $1.
	QuestionMarks bool
	// QuoteRune quotes identifiers. MaxIdent is the maximum length of an identifier in bytes.
	QuoteRune rune
	MaxIdent  int
	// Now is the database's wall clock in microseconds since 1970, UTC.
	Now string

	Fence     Fence
	Records   Records
	Enforce   Enforce
	Leases    LeaseSQL
	Tickets   TicketSQL
	RowLocks  RowLocks
	Rows      BusinessRows
	Sweep     Sweep
	Compare   Compare
	Fragments Fragments
	Similar   Similar
	Audit     Audit
	Prove     Prove
	Doctor    Doctor

	Privileges Privileges

	Admission Admission
	// Committed makes a plain read see only committed data, regardless of the isolation of the
	// session. The read must end in a condition. Nil means that every read does so already.
	Committed func(query string) string
	// Qualify adds the schema to each function and type name in a statement. Nil means that no
	// other object can be found under these names.
	Qualify func(text string) string

	// Fresh makes a read show what was committed before it was sent. Nil means that every read
	// does so.
	Fresh func(text string) string

	// KeepPrepared: a handle of database/sql keeps compiled statements prepared.
	KeepPrepared bool
	// Prefix is prepended to every compiled statement.
	Prefix string
	// SetOwner says in a transaction whose rows its statements are about, for policies of the tables: it
	// takes the name of a setting and the owner, and does nothing if the setting has an owner. Empty: the
	// engine has no policies. RowSecurity returns the statements that make them, for the quoted names of
	// the tables and the accounts that have the rows of every owner.
	SetOwner    string
	RowSecurity func(setting string, tables, everyOwner []string) []string

	// Single surrounds each write that is not part of a transaction, where such a write would
	// wait for a locked row without a bound. Its After commits.
	Single Setting

	// Classify returns the class of a driver's error. Nil and foreign errors are Other.
	Classify func(err error) Class
	// Disconnected reports whether err means that the connection is unusable. Another
	// connection may work.
	Disconnected func(err error) bool
	// RolledBack is an allow-list. It reports whether err, returned by COMMIT or by an
	// autocommit write, proves that nothing was committed. After any other error the outcome
	// is unknown.
	RolledBack func(err error) bool
}

// Fence prevents a statement from committing on its own after its transaction was lost. The
// texts are complete statements; an empty text means that none is needed.
type Fence struct {
	// Local: the engine runs in this process, so that the last statement and COMMIT wait for no server and
	// need no context that ends. Some drivers start a goroutine for each statement whose context can.
	Local bool
	// Setting is changed before BEGIN and restored after COMMIT, on the pinned connection.
	Setting Setting
	// Kept is the form of Setting for a session that keeps it from one of Holdfast's transactions to
	// the next. Its Before is nil if no session can. With Implicit, a transaction then begins with
	// its first statement.
	Kept     Setting
	Implicit bool
	// Survives reports whether the transaction surely goes on after a statement that failed with
	// err, and Ends whether a statement may end it. Nil: only the server knows.
	Survives func(err error) bool
	Ends     func(query string) bool
	// First runs first in the transaction, unless the first statement sets the lock timeout
	// itself.
	First func(lockTimeout time.Duration) string
	// OrFail returns a write in a form that fails with the code Untouched if it affects no row: what was
	// sent behind it is then skipped. Nil: no driver of the engine sends anything behind it.
	OrFail    func(write string) string
	Untouched string
	// Mark at the start and Check at the end prove that the transaction is still the same.
	// Alive proves, before a caller's transaction is joined, that it has not ended.
	Mark, Check string
	Alive       []string
	// Veto registers two functions on the driver's connection. Commits fail while forbidden returns
	// true, and lost is called when a transaction is rolled back. Veto returns a function that
	// removes the registration.
	Veto func(driverConn any, forbidden func() bool, lost func()) (remove func(driverConn any), err error)
}

// Records is the SQL of the idempotency records. {records} is the table, {now} the clock and $0
// the owner. Parameters in order:
//
//	Look:   key_hash
//	Lock:   key_hash
//	Claim:  key_hash, namespace, operation, op_key, fingerprint,
//	        fingerprint_version, attempt; with ClaimBounds also the lock timeout of the
//	        claim and the lock timeout to set afterwards ("" = unchanged). With ClaimBounds
//	        it is a query that returns the number of inserted rows and the setting
//	ClaimSetting: the same without the last parameter
//	Renew:  key_hash (deletes a record whose key has expired)
//	Finish: key_hash, attempt, state, result, result TTL, key TTL (µs or NULL),
//	        codec, business_id, holder, program, request_id (the last three or NULL)
//	Reserve: key_hash, the lock timeout of the wait for the lock, and the lock timeout
//	        to set afterwards
//	Record: those of Finish, then namespace, operation, op_key, fingerprint,
//	        fingerprint_version, the microseconds since Reserve, and the transaction's id
//	Before: key_hash, the transaction's id
//	Unfinished: key_hash, attempt, the transaction's id, namespace, operation, op_key,
//	        fingerprint, fingerprint_version
type Records struct {
	Look, Lock, Claim, Renew, Finish string
	Verdict                          Verdict
	// ClaimSetting is Claim without restoring the lock timeout. It wins by affected rows.
	ClaimSetting string
	// Reserve locks a key until the transaction ends, without a write, if the transaction's level is
	// at most ReserveUpTo. Reserved tells from its result whether there is no record. Record then
	// writes the whole record, as the last statement: one row if the transaction is the one that
	// reserved, and there is no record. Otherwise it writes none, or fails with the code Untouched or
	// class Duplicate. Every Claim takes the same lock. Empty: the engine has no lock without a write.
	Reserve, Record string
	Reserved        Verdict
	ReserveUpTo     sql.IsolationLevel
	// Before and Unfinished are there if Reserve may miss a record. Reserve is then a query: it
	// returns 1 and the transaction's id, or no row. Before returns 1 or 0 for a record, whose key has not
	// expired, that was written before the transaction had the lock, and for a transaction that is
	// committed. Unfinished inserts a claim if it is: the function has committed it itself. {lockspace} makes the number of the lock.
	Before, Unfinished string
	// Holders returns the sessions that hold the lock of a key, with the columns of Doctor.Blockers. Parameters: the
	// owner ($0), key_hash. Empty: those who wait for the key have to ask while they wait.
	Holders string
	// PeekBefore makes the next statement, and only that one, read at READ UNCOMMITTED, on an
	// engine that needs a setting for it.
	PeekBefore string
	// ClaimWithin returns Claim in a form that bounds its own wait for a lock, for a caller's
	// transaction. Nil: Bound surrounds it.
	ClaimWithin func(claim string, wait time.Duration) string
	// WaitEnds returns 1 if a wait of Claim that has ended has ended the transaction too. Empty: none does.
	WaitEnds string
	// ClaimBounds: Claim bounds its own wait. Otherwise Bound surrounds Claim in a caller's
	// transaction. Bound surrounds Renew in any case.
	ClaimBounds bool
	Bound       Setting
}

// Look reads one record. It is the same on every engine.
const Look = `SELECT state, fingerprint, fingerprint_version, result, COALESCE(codec, ''), COALESCE(business_id, ''), COALESCE(request_id, ''),
 CASE WHEN result_expires_at <= {now} THEN 1 ELSE 0 END, CASE WHEN key_expires_at <= {now} THEN 1 ELSE 0 END
FROM {records} WHERE owner = $0 AND key_hash = $1`

// BusinessRows is the SQL of business rows: the caller's own tables.
type BusinessRows struct {
	// Insert returns the statement that claims a key. The table, the columns and the key
	// columns are quoted already.
	Insert  func(table string, columns, key []string) string
	Verdict Verdict
	// Tuples begins a list of tuples after IN.
	Tuples string
	// LockClause ends the read of the row that already existed.
	LockClause string
	// Columns and Uniques describe a table: see the table check of package idempotency.
	// Parameters: schema ("" = current) and table.
	Columns, Uniques string
	// Leads lists indexes with their first column, and whether a search by a non-NULL value of
	// that column may use the index.
	Leads string
	// Exact reports whether a column's type and collation distinguish all values. If not, it
	// returns the reason.
	Exact func(typ, collation string) (ok bool, why string)
	// Version returns what a column of this type can hold as a version. The type is in lower
	// case.
	Version func(typ string) VersionType
	// Form returns how a column of this type accepts text and bytes.
	Form func(typ string) Form
}

// Form says how a column accepts text and bytes.
type Form int

const (
	// FormAny: the column accepts both.
	FormAny Form = iota
	// FormText: bytes must be sent as text. FormBytes: text must be sent as bytes.
	FormText
	FormBytes
)

// AnyForm is Rows.Form for an engine that converts between text and bytes.
func AnyForm(string) Form { return FormAny }

// Passes reports whether err may pass on its own: the server cannot be reached, fails over, or asks for
// another try.
func (d *Dialect) Passes(err error) bool {
	switch d.Classify(err) {
	case Retry, Busy, Unready, ReadOnly, Cut:
		return true
	}
	return d.Disconnected(err)
}

// Refuses reports whether err may be the server's answer to a row that it does not take: a trigger, or a
// constraint other than a unique key, refuses it.
func (d *Dialect) Refuses(err error) bool {
	switch d.Classify(err) {
	case Other, Referenced, Refused, Fenced:
		return !d.Disconnected(err) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
	}
	return false
}

// Ident quotes an identifier.
func (d *Dialect) Ident(name string) string { return QuoteIdent(string(d.QuoteRune), name) }

// Idents quotes each of the names.
func (d *Dialect) Idents(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = d.Ident(n)
	}
	return out
}

// Last compiles a write that ends a transaction: see core.Pipeline.
func (d *Dialect) Last(name, text string) core.Bound {
	b := core.Bound{Stmt: d.Compile(name, text)}
	if b.OrFail = b.Stmt; d.Fence.OrFail != nil {
		b.OrFail = d.Compile(name, d.Fence.OrFail(text))
	}
	return b
}

// Compile compiles text into a statement.
func (d *Dialect) Compile(name, text string) core.Stmt {
	if d.Qualify != nil {
		text = d.Qualify(text)
	}
	if d.Fresh != nil {
		text = d.Fresh(text)
	}
	if d.Prefix != "" && text != "" {
		text = d.prefixed(text)
	}
	stmt := core.Compile(name, mutated(name, text), d.QuestionMarks)
	stmt.Prepared = d.KeepPrepared && strings.Contains(stmt.Text, "?")
	return stmt
}

// Look compiles a plain read of committed data. The query must end in a condition.
func (d *Dialect) Look(name, query string) core.Stmt {
	if d.Committed != nil {
		query = d.Committed(query)
	}
	return d.Compile(name, query)
}

// prefixed adds Prefix to text. It merges the settings of both if text already begins with SET
// STATEMENT.
func (d *Dialect) prefixed(text string) string {
	const set = "SET STATEMENT "
	if rest, has := strings.CutPrefix(text, set); has && strings.HasPrefix(d.Prefix, set) {
		return strings.TrimSuffix(d.Prefix, " FOR ") + ", " + rest
	}
	return d.Prefix + text
}

// Millis formats d in milliseconds, rounded up, at least 1.
func Millis(d time.Duration) string { return strconv.FormatInt(millis(d), 10) }

func millis(d time.Duration) int64 { return max(int64((d+time.Millisecond-1)/time.Millisecond), 1) }

// Params returns the parameters $1 to $n as a list.
func Params(n int) string {
	p := make([]string, n)
	for i := range p {
		p[i] = "$" + strconv.Itoa(i+1)
	}
	return strings.Join(p, ", ")
}
