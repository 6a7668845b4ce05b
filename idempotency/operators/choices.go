package operators

import (
	"encoding/json"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/errcode"
)

// Errors in the parts of a resolution.
var (
	ErrChoice         = errcode.New("resolution-unknown", "there is no such resolution")
	ErrResultJSON     = errcode.New("resolution-not-json", "the result is not JSON: give what the function would have returned, such as null, 12 or \"text\" with its quotes")
	ErrNoCode         = errcode.New("resolution-no-code", "say why it was rejected: a code, and a message for people")
	ErrResultUnwanted = errcode.New("resolution-result-unwanted", "a result goes with step-done and succeeded only")
)

// The resolutions of an operation.
const (
	AsStepDone     = "step-done"
	AsStepNotDone  = "step-not-done"
	AsStepRejected = "step-rejected"
	AsResume       = "resume"
	AsSucceeded    = "succeeded"
	AsRejected     = "rejected"
	AsFree         = "free"
)

// Choices lists the resolutions that an unknown operation allows.
func Choices(op *staged.Operation) []string {
	switch {
	case op.State != idempotency.StateUnknown:
		return nil
	case !op.Staged:
		return []string{AsSucceeded, AsRejected, AsFree}
	case op.Step == "":
		return []string{AsResume, AsSucceeded, AsRejected}
	}
	for _, step := range op.Steps {
		switch {
		case step.Name != op.Step || op.Contradicted:
		case step.State == staged.Succeeded: // its result is to be replaced
			return []string{AsStepDone, AsResume, AsSucceeded, AsRejected}
		case step.State == staged.Rejected:
			return []string{AsStepRejected, AsResume, AsSucceeded, AsRejected}
		}
	}
	return []string{AsStepDone, AsStepNotDone, AsStepRejected, AsSucceeded, AsRejected}
}

// ResultType returns the type of the result that a resolution needs. It is empty if the resolution
// needs none, or if the type is not known.
func ResultType(op *staged.Operation, as string) string {
	if as == AsSucceeded {
		return op.ResultType
	}
	for _, step := range op.Steps {
		if as == AsStepDone && step.Name == op.Step {
			return step.ResultType
		}
	}
	return ""
}

// ParseResolution parses a Resolution from text: result is JSON, code and message belong to a
// rejection.
func ParseResolution(as, result, code, message string) (r Resolution, err error) {
	value := json.RawMessage(result) // raw JSON keeps every digit
	switch as {
	case AsStepDone, AsSucceeded:
		if !json.Valid(value) {
			return r, ErrResultJSON
		}
	case AsStepRejected, AsRejected:
		if code == "" {
			return r, ErrNoCode
		}
		r.Rejection = &idempotency.Rejection{Code: code, Message: message}
	}
	if result != "" && as != AsStepDone && as != AsSucceeded {
		return r, ErrResultUnwanted
	}
	switch as {
	case AsStepDone:
		r.Step, r.StepResult = staged.StepDone, value
	case AsStepNotDone:
		r.Step = staged.StepNotDone
	case AsStepRejected:
		r.Step = staged.StepRejected
	case AsResume:
		r.Resume = true
	case AsSucceeded:
		r.Succeed, r.Result = true, value
	case AsRejected:
		r.Reject = true
	case AsFree:
		r.Free = true
	default:
		return r, ErrChoice
	}
	return r, nil
}
