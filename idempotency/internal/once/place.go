package once

// Place is where a value of an operation is stored. A codec binds what it stores to its place.
type Place struct {
	ValueKind
	Name string // of the step, or the id of the event or the proposal
}

// ValueKind is what a stored value is.
type ValueKind string

// The kinds of stored values: of a record, of a staged operation, its steps and its events, and of a proposal.
const (
	RecordResult    ValueKind = "record result"
	RecordRejection ValueKind = "record rejection"
	StagedRequest   ValueKind = "staged request"
	StagedResult    ValueKind = "staged result"
	StagedRejection ValueKind = "staged rejection"
	StepResult      ValueKind = "step result"
	StepRejection   ValueKind = "step rejection"
	EventBody       ValueKind = "event body"
	Proposed        ValueKind = "proposed"
)

// Hash hashes the place, the hash of the operation's key, and the form of the value, as HashKey
// hashes keys.
func (p Place) Hash(key Hash, form string) Hash {
	return hashParts("holdfast place 1", key[:], []string{string(p.ValueKind), p.Name, form})
}
