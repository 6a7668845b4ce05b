package ledger

// What Lookup and operators call the state of an operation, by the numbers of idempotency.State. A row has
// one by its state, its expiry and the clock: Seen and Row.Seen tell it in Go, seen and RecordSeen in SQL.
// Whatever has ended is Succeeded or Rejected, and two more if its result is no longer kept.
const (
	SeenAbsent = iota
	SeenInProgress
	SeenWaiting
	SeenSettling
	SeenUnknown
	SeenSucceeded
	SeenRejected
	SeenSucceededExpired
	SeenRejectedExpired
)

// RecordSeen is Seen in SQL.
const RecordSeen = `CASE WHEN` + seenEnded

const (
	seen      = `CASE WHEN state = 1 AND accepted = 1 THEN 3 WHEN state = 1 AND attempt IS NOT NULL AND due_at > {now} THEN 1 WHEN state = 1 THEN 2 WHEN` + seenEnded
	seenEnded = ` state IN (2, 3) AND result_expires_at <= {now} THEN state + 5 WHEN state BETWEEN 2 AND 5 THEN state + 3 ELSE 4 END`
)

// Ended are the states of what has ended.
var Ended = []int{SeenSucceeded, SeenRejected, SeenSucceededExpired, SeenRejectedExpired}

// rowStates are the states of the rows that are seen so. The indexes have them.
var rowStates = [...]string{
	SeenInProgress: "1", SeenWaiting: "1", SeenSettling: "1", SeenUnknown: "1, 6",
	SeenSucceeded: "2", SeenRejected: "3", SeenSucceededExpired: "2, 4", SeenRejectedExpired: "3, 5",
}

// Seen is for a record of Do: others see a claimed one only if it was committed without a result.
func Seen(state, resultExpired int) int {
	switch {
	case state == Pending, state == Parked:
		return SeenUnknown
	case resultExpired == 1 && (state == Succeeded || state == Rejected):
		state += 2
	}
	return state + SeenSucceeded - Succeeded
}

// Seen is for a staged operation.
func (r *Row) Seen() int {
	switch {
	case r.State != Pending:
		return Seen(r.State, r.ResultExpired)
	case r.Accepted == 1:
		return SeenSettling
	case r.Attempt != nil && r.Left > 0:
		return SeenInProgress
	}
	return SeenWaiting
}
