package once

// Place is where a value of an operation is stored. A codec binds what it stores to its place.
type Place struct {
	Kind
	Name string // of the step, or the id of the event or the proposal
}

// Kind is what a stored value is.
type Kind string

// The kinds of stored values: of a record, of a staged operation, its steps and its events, and of a proposal.
const (
	RecordResult    Kind = "record result"
	RecordRejection Kind = "record rejection"
	StagedRequest   Kind = "staged request"
	StagedResult    Kind = "staged result"
	StagedRejection Kind = "staged rejection"
	StepResult      Kind = "step result"
	StepRejection   Kind = "step rejection"
	EventBody       Kind = "event body"
	Proposed        Kind = "proposed"
)

// Hash hashes the place, the hash of the operation's key, and the form of the value, as HashKey
// hashes keys.
func (p Place) Hash(key Hash, form string) Hash {
	return hashParts("holdfast place 1", key[:], []string{string(p.Kind), p.Name, form})
}
