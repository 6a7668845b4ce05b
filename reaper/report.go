package reaper

import "time"

// Report says what a pass did.
type Report struct {
	// Cutoff is the database's clock when the pass began: what had expired by
	// then was due.
	Cutoff time.Time
	// Tasks are in the order in which they ran; those that an error or
	// MaxRows kept from running are missing or incomplete.
	Tasks []TaskReport
	// Duration is that of the whole pass, rests included.
	Duration time.Duration
	// More: MaxRows ended the pass, and there may be more to clear.
	More bool
	// Unrecorded is why the pass is missing in the history, which ends no pass.
	Unrecorded error
}

// Rows is the sum over all tasks.
func (r Report) Rows() (n int64) {
	for _, t := range r.Tasks {
		n += t.Rows
	}
	return n
}

// TaskReport is one kind of row: "results" became tombstones, "keys", "locks",
// "waiters" and "claims" were deleted, as were those of the table of the program's
// own that Task names.
type TaskReport struct {
	Task string
	// Rows were cleared (in a dry run: are due), in Batches.
	Rows    int64
	Batches int
	// Passed rows were due when they were looked for and were left alone:
	// claimed anew or given more time in the same moment, locked by another
	// session, or cleared by another reaper.
	Passed int64
	// Referenced are those of Passed that a foreign key of another table kept.
	Referenced int64
	// Oldest is how long ago the oldest row that was due had expired: how far
	// the reaper lags behind. Of locks and claims it is more than Options.LockGrace.
	Oldest time.Duration
	// Duration includes the rests between batches.
	Duration time.Duration
}
