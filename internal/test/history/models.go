package history

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

type phase string

const (
	free   phase = "free"
	held   phase = "held"
	lapsed phase = "lapsed" // in the database held, or expired: no holder trusts it
)

type leaseState struct {
	last  int64
	phase phase
}

// leaseModel is a lease with fencing tokens. Its operations are those of
// lease.steps.
//
//nolint:exhaustruct // porcupine's defaults are meant
func leaseModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return leaseState{phase: free} },
		Step: func(state, input, _ any) (bool, any) {
			before, _ := state.(leaseState)
			s, _ := input.(step)
			return before.step(s)
		},
		DescribeOperation: func(input, _ any) string {
			s, _ := input.(step)
			return s.op.describe()
		},
		DescribeState: func(state any) string {
			s, _ := state.(leaseState)
			return fmt.Sprintf("%s, last token %d", s.phase, s.last)
		},
	}
}

func (s leaseState) step(next step) (legal bool, after leaseState) {
	mine := s.last == next.token
	switch {
	case next.op.Outcome == Refused:
		legal = s.phase != free
	case next.op.Kind == KindGrant:
		legal = s.phase != held && s.last == next.previous && next.token > s.last
		s = leaseState{next.token, held}
	case next.op.Kind == KindRelease:
		legal = mine && s.phase != free
		s.phase = free
	case next.op.Kind == kindLapse:
		legal = s.last >= next.token
		if mine && s.phase == held {
			s.phase = lapsed
		}
	default: // a renewal or a commit
		legal = mine && s.phase != free
	}
	return legal, s
}

// registerModel is a value that is read, written, and swapped where it is the
// expected one. It begins empty.
//
//nolint:exhaustruct // porcupine's defaults are meant
func registerModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return "" },
		Step: func(state, input, _ any) (bool, any) {
			value, _ := state.(string)
			op, _ := input.(Op)
			switch {
			case op.Kind == KindRead:
				return op.Value == value, value
			case op.Kind == KindWrite:
				return true, op.Value
			case op.Outcome == OK:
				return op.Expect == value, op.Value
			case op.Outcome == Refused:
				return op.Expect != value, value
			case op.Expect == value: // of unknown outcome: now, or as the very last
				return true, op.Value
			default:
				return true, value
			}
		},
		DescribeOperation: func(input, _ any) string {
			op, _ := input.(Op)
			return op.describe()
		},
	}
}

// registerSteps returns the operations of the model. An operation of unknown outcome lasts until
// the end of the history; a read without an answer is no step.
func registerSteps(ops History) []porcupine.Operation {
	_, last := ops.span()
	clients := make(map[holder]int)
	var steps []porcupine.Operation
	for _, op := range ops {
		if op.Kind == KindRead && op.Outcome == "" {
			continue
		}
		who := holder{0, op.Process, op.Client}
		if _, ok := clients[who]; !ok {
			clients[who] = len(clients)
		}
		end := op.Return
		if op.Outcome == "" {
			end = last + 1
		}
		steps = append(steps, porcupine.Operation{ClientId: clients[who], Input: op, Call: int64(op.Call), Return: int64(end)})
	}
	return steps
}
