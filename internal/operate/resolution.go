package operate

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/holdfast-go/holdfast/idempotency"
)

// What is wrong with the parts of a resolution.
var (
	ErrAs     = errors.New("there is no such resolution")
	ErrResult = errors.New("the result is not JSON: give what the function would have returned, such as null, 12 or \"text\" with its quotes")
	ErrCode   = errors.New("say why it was rejected: a code, and a message for people")
	ErrNoneOf = errors.New("a result goes with step-done and succeeded only")
)

// What an operation can be resolved as.
const (
	StepDone     = "step-done"
	StepNotDone  = "step-not-done"
	StepRejected = "step-rejected"
	Resume       = "resume"
	Succeeded    = "succeeded"
	Rejected     = "rejected"
	Free         = "free"
)

// Legal lists what an unknown operation can be resolved as.
func Legal(op *idempotency.Operation) []string {
	switch {
	case op.State != idempotency.Parked:
		return nil
	case !op.Staged:
		return []string{Succeeded, Rejected, Free}
	case op.Step != "":
		return []string{StepDone, StepNotDone, StepRejected, Succeeded, Rejected}
	}
	return []string{Resume, Succeeded, Rejected}
}

// Resolution reads one: result is JSON, code and message are a rejection's.
func Resolution(as, result, code, message string) (r idempotency.Resolution, err error) {
	var value any
	switch as {
	case StepDone, Succeeded:
		d := json.NewDecoder(strings.NewReader(result))
		d.UseNumber() // which keeps every digit
		if err := d.Decode(&value); err != nil || d.More() {
			return r, ErrResult
		}
	case StepRejected, Rejected:
		if code == "" {
			return r, ErrCode
		}
		r.Rejection = &idempotency.Rejection{Code: code, Message: message}
	}
	if result != "" && as != StepDone && as != Succeeded {
		return r, ErrNoneOf
	}
	switch as {
	case StepDone:
		r.Step, r.StepResult = idempotency.SettlesDone, value
	case StepNotDone:
		r.Step = idempotency.SettlesNotDone
	case StepRejected:
		r.Step = idempotency.SettlesRejected
	case Resume:
		r.Resume = true
	case Succeeded:
		r.Succeed, r.Result = true, value
	case Rejected:
		r.Reject = true
	case Free:
		r.Free = true
	default:
		return r, ErrAs
	}
	return r, nil
}
