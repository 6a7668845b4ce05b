package reaper

import "time"

// Report describes what a pass did.
type Report struct {
	// Cutoff is the database's clock when the pass began. Rows that had expired by then were
	// due.
	Cutoff time.Time
	// Tasks are in the order in which they ran. Tasks that an error or MaxRows stopped are
	// missing or incomplete.
	Tasks []TaskReport
	// Duration is the duration of the whole pass, pauses included.
	Duration time.Duration
	// More is true when MaxRows ended the pass. There may be more rows to clear.
	More bool
	// Unrecorded is the error that kept the pass out of the history. It does not fail the pass.
	Unrecorded error
}

// Rows returns the number of rows cleared by all tasks.
func (r Report) Rows() (n int64) {
	for _, t := range r.Tasks {
		n += t.Rows
	}
	return n
}

// TaskReport describes one kind of row. Task "results" turned records into tombstones, and
// "staged_results" staged operations. "keys", "staged_keys", "locks", "waiters", "tickets", "similar"
// and "limit_entries" deleted rows. Any other Task is the name of a table of the
// program's own, whose rows were deleted.
type TaskReport struct {
	Task string
	// Rows is the number of rows cleared, in Batches; in a dry run, the number due.
	Rows    int64
	Batches int
	// Passed counts rows that were found due and then left alone: the row was claimed anew or
	// extended in the same moment, locked by another session, or cleared by another reaper.
	Passed int64
	// Referenced counts those of Passed that a foreign key of another table kept.
	Referenced int64
	// Oldest is how long ago the oldest due row had expired: the lag of the reaper. For locks
	// and tickets it exceeds Options.LockGrace.
	Oldest time.Duration
	// Duration includes the pauses between batches.
	Duration time.Duration
}
