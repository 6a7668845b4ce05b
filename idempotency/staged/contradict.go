package staged

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// contradicts reports whether two answers about one call exclude each other.
func contradicts(known, said int) bool {
	if known == ledger.StepDone {
		return said == ledger.StepRejected || said == ledger.StepNotDone
	}
	return known == ledger.StepRejected && said == ledger.StepDone
}

// contradiction describes two answers that exclude each other: the stored one, and the one that
// source gives now.
func (s *transitions[Tx]) contradiction(id once.ID, step string, known *ledger.StepRow, source string, state int, rej *idempotency.Rejection) string {
	before := &idempotency.Rejection{}
	if known.State != ledger.StepRejected || s.unpack(id, ofStep(step, true), known.Result, before) != nil {
		before = nil
	}
	return fmt.Sprintf("the provider contradicts itself about step %q: the known answer is %s, %s says %s; find out which is true",
		step, answered(known.State, before), source, answered(state, rej))
}

// ended reports whether the state of an operation is final.
func ended(row *ledger.Row) bool { return row.State != ledger.Pending && row.State != ledger.Parked }

// erased reports whether what was asked and answered is gone.
func erased(row *ledger.Row) bool {
	return row.State == ledger.Tombstone || row.State == ledger.RejectedTombstone
}

// succeeded reports whether an operation has ended so, erased or not.
func succeeded(row *ledger.Row) bool {
	return row.State == ledger.Succeeded || row.State == ledger.Tombstone
}

func answered(state int, rej *idempotency.Rejection) string {
	words := [...]string{ledger.StepNotDone: "not done", ledger.StepDone: "done", ledger.StepRejected: "rejected"}
	if rej != nil && rej.Code != "" {
		return fmt.Sprintf("%s (%s)", words[state], once.Cut(rej.Code, 100))
	}
	return words[state]
}

// tear parks an operation whose provider has contradicted itself about a call, at the call's step or
// at none. The row is locked.
func (s *transitions[Tx]) tear(ctx context.Context, q core.Querier, id once.ID, step, reason string) error {
	_, err := s.SQL.Contradict.Exec(ctx, q, id.Args(step, ledger.ModeContradicted, reason)...)
	return err
}

// eventAgainst stores that an event contradicts the known answer of a step. The row is locked. An
// operation that has not ended is parked: at the step, or at no step if a later one may have used
// the known answer.
func (s *transitions[Tx]) eventAgainst(ctx context.Context, q core.Querier, id once.ID, row *ledger.Row, step *ledger.StepRow, f *finding) error {
	f.contradicts = true
	rej := f.rejection
	if erased(row) {
		rej = nil // what is erased stays erased
	}
	reason := s.contradiction(id, f.step, step, f.action, f.state(), rej)
	if ended(row) {
		_, err := s.SQL.Contradicted.Exec(ctx, q, id.Args(once.Cut(reason, maxReason))...)
		return err
	}
	if row.State == ledger.Parked && row.Reason != "" {
		reason += "; before: " + row.Reason
	}
	reason = once.Cut(reason, maxReason)
	later, err := s.laterThan(ctx, q, id, f.step)
	if err != nil {
		return err
	}
	at := f.step
	if later {
		at = ""
	}
	return s.tear(ctx, q, id, at, reason)
}

// eventAfter stores the answer of a call whose operation has ended without it: an operator has decided, or
// it ended, or was cancelled, after "not done". The row is locked.
func (s *transitions[Tx]) eventAfter(ctx context.Context, q core.Querier, id once.ID, row *ledger.Row, step *ledger.StepRow, f *finding) error {
	b, err := s.answerOf(id, step, f)
	if err != nil {
		return err
	}
	rej := f.rejection
	if erased(row) {
		b, rej = nil, nil // what is erased stays erased
	}
	if _, err := s.SQL.StepEnd.Stmt.Exec(ctx, q, id.Args(f.step, f.state(), once.Nullable(b), nil, nil)...); err != nil {
		return err
	}
	stays := step.State == ledger.StepNotDone && f.how != StepDone // what was known: nothing was done
	if f.contradicts = succeeded(row) != (f.how == StepDone) && !stays; !f.contradicts {
		return nil
	}
	reason := fmt.Sprintf("it was ended as %s without an answer of step %q, but %s says %s; find out which is true", seen(row), f.step, f.action, answered(f.state(), rej))
	_, err = s.SQL.Contradicted.Exec(ctx, q, id.Args(once.Cut(reason, maxReason))...)
	return err
}

// laterThan reports whether a step has begun after the named one.
func (s *transitions[Tx]) laterThan(ctx context.Context, q core.Querier, id once.ID, name string) (bool, error) {
	steps, err := parts(ctx, s, q, s.SQL.Steps, id, scanStep) // in the order in which they began
	if err != nil || len(steps) == 0 {
		return false, err
	}
	last := steps[len(steps)-1].Begun
	for _, st := range steps {
		if st.Name == name {
			return last.After(st.Begun), nil
		}
	}
	return false, nil
}

// emitParked reports that an event has parked an operation.
func (s *transitions[Tx]) emitParked(ctx context.Context, id once.ID) {
	if op, err := s.show(ctx, s.Access.Pool, id); err == nil && op.State == idempotency.StateUnknown {
		s.Access.Trace.Emit(ctx, trace.Event{Name: trace.StagedParked, Operation: op.Name, Count: 1})
	}
}

// refer keeps the reference that the function of an external call has set, if the call's outcome is
// not stored.
func (s *transitions[Tx]) refer(ctx context.Context, q core.Querier, r *Run[Tx]) error {
	if r.at == nil || r.at.reference == "" {
		return nil
	}
	_, err := s.SQL.StepRefer.Exec(ctx, q, r.id.Args(append([]any{r.at.step}, append(r.at.names(), 1)...)...)...)
	return err
}
