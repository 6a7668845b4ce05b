package dialect

import "time"

// RowLocks is the SQL of the locks that end with the caller's transaction.
// {locks} and {floor} are the tables, {now} the clock.
//
// The anchor of a key is a row of {locks} that has no owner. Each lock on it
// moves its token, so that a transaction whose snapshot is older than the last
// holder's commit is found out: by the engine, or because Find shows it another
// token than Lock. The token fences nothing, and does not regard the floor.
// Parameters: the name, of Hold also the bound on its wait, as Bound gives it.
type RowLocks struct {
	// Hold moves the anchor, or makes it, in the caller's transaction. TryHold
	// moves it unless it is locked, and returns how many rows it moved and how
	// many there are. Where Hold is empty, the four below are in its place.
	Hold, TryHold string
	// HoldBounds: Hold bounds its wait itself.
	HoldBounds bool

	// Make makes the anchor, unless it is there; MakeBound surrounds it.
	Make      string
	MakeBound Setting
	// Lock goes on where Select ends, and returns the token and granted_at, which
	// is 0 for as long as nobody has held the lock; Find returns the token by a
	// plain read; Move moves it.
	Lock, Find, Move string

	// Select begins a locking read which waits at most so long, where the
	// statement can carry the bound; Clause ends it. TryClause ends one that
	// waits for nobody, and Left says how what it left out is known.
	Select            func(bound time.Duration) string
	Clause, TryClause string
	Left              Left
	// ByKey: a locking scan locks what it passes, so rows are found by a plain
	// read and locked through the index of their key. It goes after the table.
	ByKey func(index string) string
	// Take is the write that stands for a lock on every row there is.
	Take string
	// Lockable returns whether the rows of a table can be locked, and what it
	// is. Parameters: schema ("" = current), table.
	Lockable string

	// Slice bounds each statement of a longer wait, where that is not to be one
	// statement; Forever is that of a wait without an end. 0 is no bound. Least,
	// where the bound is on all that the statement does, is the shortest.
	Slice, Forever, Least time.Duration
	// BoundGet and BoundSet are the setting that bounds each wait, where no
	// statement carries the bound. {to} is what Bound gives.
	BoundGet, BoundSet string
	Bound              func(d time.Duration) string
	// BoundOutlives: the setting is the connection's, and not undone by a rollback.
	BoundOutlives bool
	// Savepoint: a wait that has ended kills the transaction, unless it is
	// behind a savepoint.
	Savepoint bool
	// Begin fails within a transaction, and begins one where the caller's has
	// ended already. Where it is empty, Fence.Alive tells.
	Begin string
}

// Left is how a row that a locking read without waiting did not return is told
// from one that is not there.
type Left int

const (
	// LeftFails: the read fails with class Busy.
	LeftFails Left = iota
	// LeftWaits: a locking read with the least bound finds it busy. A plain one
	// would fix the transaction's snapshot.
	LeftWaits
	// LeftReads: a plain read finds it.
	LeftReads
)
