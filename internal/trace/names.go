package trace

// The outcomes of calls.
const (
	Done             = "done"
	Acquired         = "acquired"
	Executed         = "executed"
	Replayed         = "replayed"
	Rejected         = "rejected"
	InProgress       = "in_progress"
	Mismatch         = "mismatch"
	Similar          = "similar"
	Expired          = "expired"
	Unknown          = "unknown"
	Unfinished       = "unfinished"
	Parked           = "parked"
	Retrying         = "retrying"
	Settling         = "settling"
	Discarded        = "discarded"
	Nested           = "nested"
	TooMany          = "too_many"
	TooLate          = "too_late"
	OtherKey         = "other_key"
	Stale            = "stale"
	Held             = "held"
	Lost             = "lost"
	Closed           = "closed"
	Capacity         = "capacity"
	LockNotAvailable = "lock_not_available"
	TimedOut         = "timeout"
	NotFound         = "not_found"
	Conflict         = "conflict"
	Duplicate        = "duplicate"
	RolledBack       = "rolled_back"
	TxLost           = "tx_lost"
	Refused          = "refused"
	Invalid          = "invalid"
	Schema           = "schema"
	Unsupported      = "unsupported"
	Canceled         = "canceled"
	Aborted          = "aborted"
	Failed           = "error"
)

// The outcomes of events: of a lease that ended, in addition to Lost and Closed, of a task of the
// reaper, of an operation that was executed though a similar one had been, and of a request that was served without a key.
const (
	Released = "released"
	Cleared  = "cleared"
	Passed   = "passed"

	Confirmed = "confirmed"
	Reported  = "reported"

	Missing   = "missing"
	Malformed = "malformed"
)

// The events.
const (
	LeaseGranted  = "lease.granted"
	LeaseEnded    = "lease.ended"
	LeaseLost     = "lease.lost"
	WaitFailed    = "lock.wait_failed"
	ReaperTask    = "reaper.task"
	ReaperRefused = "reaper.refused"
	StagedParked  = "staged.parked"
	OutboxDead    = "outbox.dead"
	SimilarAgain  = "similar.again"
	Unkeyed       = "http.unkeyed"

	ServerUnproven = "server.unproven"
)

// The causes of a lost lease.
const (
	CauseExpired    = "expired"
	CauseTaken      = "taken"
	CauseRelease    = "release"
	CauseConnection = "connection"
)

// The kinds of locks.
const (
	LockLease     = "lease"
	LockFair      = "fair"
	LockShared    = "shared"
	LockSemaphore = "semaphore"
	LockHold      = "hold"
)
