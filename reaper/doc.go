// Package reaper clears what has expired from Holdfast's tables.
//
//	r, err := reaper.New(ctx, db, reaper.Options{OnError: func(err error) { log.Print(err) }})
//	go r.Run(ctx, 5*time.Minute)  // or, from cron: r.Sweep(ctx)
//
// Nothing depends on it but disk space and, for results, how long personal
// data lies about: an expired record or lock is treated as expired whether or
// not it is still there.
//
// # What a sweep does
//
//	results   past their BodyLife become tombstones: no result, state 4 or 5; key
//	          and fingerprint stay, and duplicates get idempotency.ErrExpired
//	keys      past their KeyLife are deleted with their records; the operation
//	          may be executed again
//	locks     that were released or have expired, Options.LockGrace ago, lose
//	          their rows, whoever had them last
//	waiters   that died while they waited for a lease lose theirs
//	claims    that expired Options.LockGrace ago, places in the lines of fair
//	          locks and semaphores, are deleted as those behind them would
//
// and then the rows of the tables in Options.Tables that have expired, in this
// order. A record whose key is due is deleted as a whole, without
// becoming a tombstone first. A record that is claimed and has no verdict, and
// one without an expiry, is never touched.
//
// What had expired when the sweep began, by the database's clock, is due: the
// cutoff is read once, and no later reading makes more rows due. So a sweep
// ends, and two sweeps of the same rows at the same cutoff do the same.
//
// # Batches
//
//	look at the clock, cutoff
//	for each task:
//	   .-> find up to Batch rows                          plain reads
//	   |   look at the clock                              see below
//	   |   locks: raise the floor of the tokens           see below, rare
//	   |   clear those still due, in the order of keys    one transaction
//	   '-- rest: as long as the batch took, times Pace
//
// Records are found by their expiry. Rows of locks have no index on theirs, so
// the whole table is read once a sweep, in the order of the names, at most 5000
// rows at a time. Nor have waiters and claims, which are as many as there are
// calls that wait or hold.
//
// The write tests again what the read found, so a record that is claimed anew
// or given more time in the same moment wins, and so does a lock that is taken
// or renewed. A batch never waits long for other sessions. It skips rows that
// they have locked; records on MySQL and MariaDB excepted: there it gives up
// after a second, and is halved until the locked rows stand alone and are passed
// over (a sweep that meets very many of them ends with holdfast.ErrRetry). On
// SQLite, where a batch holds the only writer, it is small. What was passed over
// is due at the next sweep.
//
// A batch whose write takes longer than Options.BatchTime halves the next one of
// its kind; they grow again while they take less than half of that.
//
// Any number of reapers, in one process or many, may sweep the same tables.
//
// On MySQL and MariaDB a batch runs at READ COMMITTED, which the engines
// refuse together with binlog_format=STATEMENT.
//
// # Tables of your own
//
//	reaper.Options{Tables: []reaper.TableSpec{
//		{Table: "sessions", Key: []string{"id"}, Expires: "expires_at", Unit: reaper.Milliseconds},
//		{Table: "audit", Key: []string{"id"}, Expires: "made_at", Unit: reaper.Timestamp, Grace: 90 * 24 * time.Hour},
//	}}
//
// They are checked by New: a unique key that is NOT NULL, a type that Unit fits, and
// an index that begins with the expiry, best followed by the key (or Scan). NULL
// never expires, nor does a time before 2000. Their batches are as those above: up
// to 512 rows, the expiry and the conditions tested again in the delete, rows that
// others have locked passed over. A row that a foreign key of another table keeps is
// passed over too, and counted in TaskReport.Referenced; what goes with a row by ON
// DELETE CASCADE, or a trigger of the table's, is the batch's to wait for. An error in
// one table ends the pass of that table only. The user needs SELECT and DELETE on
// them, on PostgreSQL, MySQL and MariaDB UPDATE too, as the rows are locked first.
//
// # Tokens
//
// The fencing tokens of a key rise for ever, also when its row was deleted and
// the clock was set back: the first token of a new row exceeds the floor, a
// number that all locks share. Before rows are deleted the floor is raised to
// the greatest of their tokens, in a transaction of its own, for which the
// acquisition of new keys waits shortly. A sweep whose floor has no row deletes
// no locks and returns [holdfast.ErrSchema].
//
// # Errors
//
// A batch that was rolled back (deadlock, serialization failure, a busy
// database) is run again up to ten times, with jittered pauses. Any other error
// ends the sweep and is returned with the report of what was done before; the
// next sweep needs to know nothing of it. The commit of a batch may be unknown
// as any other: then its rows are either cleared or found again.
//
// # History
//
// A sweep that cleared or failed something is written into the table
// holdfast_sweeps: when, whose, how many rows of which kind, and what ended it, in
// words that quote no values. [History] reads it; the last thousand passes of 90
// days are kept. Where it cannot be written the sweep is as good as any, and
// Report.Unrecorded says why.
//
// # A clock that leaps
//
// Rows that were deleted because a clock was wrong do not come back when it is
// set right. So each look at the database's clock is compared with the one
// before it, in this process, by the process's monotonic stopwatch. If the
// database's clock has gained or lost more than Options.MaxClockLeap, Sweep
// returns a [ClockLeapError] and does nothing; between two batches it ends
// there. It is no leap when a reply was slow. The first look is New's.
//
// From then on every sweep is refused, until
//
//   - the clock is back where the stopwatch says it should be, or
//   - [Reaper.AcceptClock] is called: a person has seen that the clock is right, or
//   - the program is restarted.
//
// A failover to a server with another clock is such a leap. So is a suspended
// machine whose stopwatch stood still meanwhile; a program for which this is
// usual may call AcceptClock from OnError, and gives the protection up.
// Not found: a leap while no process with a reaper runs, one that is smaller
// than the bound, and a clock that runs fast and never leaps. A reaper that
// cron starts anew each time compares the looks of one sweep only.
package reaper
