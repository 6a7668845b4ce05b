// Package reaper deletes expired rows from Holdfast's tables.
//
//	r, err := reaper.New(ctx, db)
//	go r.Run(ctx) // a pass a minute; or, from cron: r.Sweep(ctx)
//
// The reaper affects only disk space and, for results, how long personal data is stored.
// Holdfast treats an expired record or lock as expired whether or not its row still exists.
//
// # What a sweep does
//
// A sweep clears these rows, in this order:
//
//	results   past their ResultTTL become tombstones: no result, state 4 or 5; key
//	          and fingerprint stay, and duplicates get idempotency.ErrExpired
//	keys      past their KeyTTL are deleted with their records; the operation
//	          may be executed again
//	locks     that were released or expired at least Options.LockGrace ago are
//	          deleted
//	waiters   of processes that died while they waited for a lease are deleted
//	tickets   of fair locks and semaphores that expired at least Options.LockGrace
//	          ago are deleted, as the next ticket would do
//	staged_results and staged_keys
//	          do as results and keys with staged operations that have ended, with the
//	          results of their steps and the bodies of their events, or all their
//	          rows; interventions of operators stay
//	similar   rows of idempotency.Op.Similar are deleted when their window is over
//	limit_entries
//	          that have ended, past limits.Options.Keep, are deleted; the counters of
//	          the limit stay, and the id may be used again
//
// Then it deletes the expired rows of the tables in Options.Tables. A record whose key is due
// is deleted as a whole, without becoming a tombstone first. The sweep never touches a record
// that is in progress or has no expiry.
//
// Rows are due if they had expired when the sweep began, by the database's clock. The sweep
// reads this cutoff once, and no later reading makes more rows due. So a sweep ends, and two
// sweeps of the same rows at the same cutoff do the same.
//
// # Batches
//
//	read the clock: the cutoff
//	for each task:
//	   .-> find up to Batch rows                          plain reads
//	   |   read the clock                                 see below
//	   |   locks: raise the floor of the tokens           see below, rare
//	   |   clear those still due, in the order of keys    one transaction
//	   '-- pause: as long as the batch took, times Pace
//
// An index on the expiry finds the records, the staged operations and the rows of Similar. Lock rows have no such index, so each sweep reads
// the whole table once, in the order of the names, at most 5000 rows at a time. Waiters and
// tickets have no such index either. There are only as many of them as there are calls that
// wait or hold.
//
// The write tests again what the read found. So a record that is claimed anew or extended in
// the same moment stays, and so does a lock that is taken or renewed. A batch never waits long
// for other sessions, because it skips rows that they have locked. Records on MySQL and MariaDB
// are the exception. There a batch gives up after a second and is halved until each locked row
// stands alone and is passed over. A sweep that meets very many locked rows ends with
// holdfast.ErrRetry. On SQLite batches are small, because a batch holds the only write lock.
// Rows that were passed over are due at the next sweep.
//
// A batch whose write takes longer than Options.BatchTime halves the next batch of its task.
// Batches grow again while they take less than half of that time.
//
// Any number of reapers, in one process or in many, may sweep the same tables.
//
// On MySQL and MariaDB a batch runs at READ COMMITTED. These engines refuse that together with
// binlog_format=STATEMENT.
//
// # Tables of your own
//
//	reaper.Options{Tables: []reaper.Table{
//		{TableSpec: holdfast.TableSpec{Table: "sessions", Key: []string{"id"}}, Expires: "expires_at", Unit: reaper.Milliseconds},
//		{TableSpec: holdfast.TableSpec{Table: "audit", Key: []string{"id"}}, Expires: "made_at", Unit: reaper.Timestamp, Grace: 90 * 24 * time.Hour},
//	}}
//
// New checks each table: the key is unique and NOT NULL, the type of the expiry fits Unit, and
// an index begins with the expiry, ideally followed by the key (or Scan is set). NULL never
// expires, and neither does a time before 2000. Batches work as above: up to 512 rows, the
// delete tests the expiry and the conditions again, and rows that other sessions have locked
// are passed over. A row that a foreign key of another table keeps is passed over too, and
// counted in TaskReport.Referenced. A batch waits for ON DELETE CASCADE and for the table's
// triggers. An error in one table ends the pass of that table only. The database user needs
// SELECT and DELETE on these tables. On PostgreSQL, MySQL and MariaDB it needs UPDATE too,
// because the batch locks the rows first.
//
// # Tokens
//
// The fencing tokens of a key always rise, even after its row was deleted and the clock was set
// back. The token of a new row exceeds the floor, a number that all locks share. Before the
// reaper deletes rows, it raises the floor to their greatest token, in a transaction of its
// own. Acquisitions of new keys wait shortly for that transaction. If the row of the floor is
// missing, a sweep deletes no locks and returns [holdfast.ErrSchema].
//
// # Errors
//
// A batch that the engine rolled back (deadlock, serialization failure, busy database) runs
// again up to ten times, with jittered pauses. Any other error ends the sweep. Sweep returns it
// with a report of what was done before. The next sweep needs no information about it. If the
// outcome of a batch's commit is unknown, its rows are either cleared or found again.
//
// # History
//
// A sweep that cleared rows or failed is recorded in the table holdfast_sweeps: when it ran,
// the holder, how many rows of which kind it cleared, and what ended it. The error text quotes
// no values. [History] reads the table. It keeps the last thousand passes of 90 days. If
// recording fails, the sweep itself is unaffected, and Report.Unrecorded holds the error.
//
// # A clock that jumps
//
// Rows that were deleted because a clock was wrong do not come back when the clock is
// corrected. So the reaper compares each reading of the database's clock with the previous one,
// by the process's monotonic clock. If the database's clock has gained or lost more than
// Options.MaxClockJump, Sweep returns a [ClockJumpError] and clears nothing. Between two
// batches, it ends there. A slow reply does not count as a jump. New takes the first reading.
//
// After a jump every sweep is refused, until
//
//   - the database's clock is again where the monotonic clock expects it, or
//   - an operator has checked the clock and the program calls [Reaper.AcceptClock], or
//   - the program restarts.
//
// A failover to a server with another clock is such a jump. So is a suspended machine whose
// monotonic clock stood still. A program for which this is usual may call AcceptClock from
// RunOptions.OnPass, and loses the protection.
//
// The reaper does not detect a jump while no process with a reaper runs, a jump smaller than
// the bound, or a clock that runs fast without jumping. A reaper that cron starts each time
// compares only the readings of one sweep.
package reaper
