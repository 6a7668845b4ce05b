package dialect

import "time"

// RowLocks is the SQL of the locks that end with the caller's transaction, for package
// rowwait. {locks} and {floor} are the tables and {now} the clock.
//
// The row of a key is a free row of {locks}. Each lock on it changes its token. So
// a transaction whose snapshot is older than the last holder's commit is detected: by the
// engine, or because Find returns another token than Lock. The token fences nothing, and
// ignores the floor. Parameters: the owner ($0); the name; for Hold also the bound on its wait, as Bound
// returns it.
type RowLocks struct {
	// Hold changes the key's row, or makes it, in the caller's transaction. TryHold
	// changes it unless it is locked, and returns how many rows it changed and how
	// many exist. If Hold is empty, the four statements below replace it.
	Hold, TryHold string
	// HoldBounds: Hold bounds its wait itself.
	HoldBounds bool

	// NoSession says why the engine refuses a lock that lives as long as its connection; ""
	// if it does not.
	NoSession string

	// Make makes the row, unless it exists; MakeBound surrounds Make.
	Make      string
	MakeBound Setting
	// Lock continues after Select, and returns the token and granted_at, which is 0
	// until a transaction has held the lock. Find returns the token by a plain read.
	// Move changes the token.
	Lock, Find, Move string

	// Select begins a locking read that waits up to bound, if the statement can carry
	// the bound; Clause ends it. TryClause ends a read that does not wait, and Left
	// says how a row that it left out is recognized.
	Select            func(bound time.Duration) string
	Clause, TryClause string
	Left              Left
	// ByKey: a locking scan locks the rows that it passes, so a plain read finds rows
	// and they are locked through the index of their key. Its text follows the table.
	ByKey func(index string) string
	// OneByOne: SKIP LOCKED returns locked rows, so rows are locked one by one, with
	// TryClause.
	OneByOne bool
	// Take is the write that stands for a lock on every row.
	Take string

	// Slice bounds each statement of a longer wait; 0 is no bound. Forever is the
	// bound in a wait without end. Least is the shortest bound, where the bound is on
	// the whole statement.
	Slice, Forever, Least time.Duration
	// BoundGet and BoundSet read and write the setting that bounds each wait, where no
	// statement carries the bound. {to} is what Bound returns.
	BoundGet, BoundSet string
	Bound              func(d time.Duration) string
	// BoundOutlives: the setting is the connection's, and a rollback keeps it.
	BoundOutlives bool
	// Savepoint: a wait that ends without the lock aborts the transaction, unless a savepoint
	// precedes it.
	Savepoint bool
	// Begin fails within a transaction, and begins one if the caller's has ended: all that join a caller's transaction
	// ask by it. If it is empty, Fence.Alive replaces it.
	Begin string
}

// Left says how to tell a row that a non-waiting read skipped from a row that does not exist.
type Left int

const (
	// LeftFails: the read fails with class Busy.
	LeftFails Left = iota
	// LeftWaits: a locking read with the least bound fails with class Busy. A plain
	// read would fix the transaction's snapshot.
	LeftWaits
	// LeftReads: a plain read finds the row.
	LeftReads
)
