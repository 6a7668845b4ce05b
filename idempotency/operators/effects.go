package operators

import (
	"context"
	"iter"
	"time"

	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/core"
)

const (
	stale = "A worker that still has it and comes back can write nothing more: its token is an old one."
	stays = "This is final. Whoever asks with the same key is told so for good."
	ends  = "None of its steps runs any more: what its function would have done after this point, such as a compensation or the release of a reservation, does not happen."
)

var effects = map[string][]string{
	AsStepDone: {
		"The step counts as done, with the result that you give, and is not called again.",
		"The operation goes on with its next step as soon as a worker comes for it.", stale,
	},
	AsStepNotDone: {
		"The operation goes on and makes the call, with the same provider key. If the call was made after all and the provider does not know the key, it happens twice.", stale,
	},
	AsStepRejected: {
		"The step counts as refused, with the code and the message that you give.",
		"The operation goes on from there: its function decides what a refusal means.", stale,
	},
	AsResume: {
		"The operation is tried again from its last step, with its attempts counted anew.", stale,
	},
	AsSucceeded: {
		"The operation ends as succeeded, with the result that you give.", ends, stays, stale,
	},
	AsRejected: {
		"The operation ends as rejected, with the code and the message that you give.", ends, stays, stale,
	},
	AsFree: {
		"The record is deleted, and the key may be executed again. If anything of it stands after all, it happens twice.",
	},
}

// Effects says what a resolution does, in sentences for people.
func Effects(as string) []string { return effects[as] }

// Hazardous reports whether a resolution can lose work or money for good if it is wrong: it ends the
// operation without its remaining steps, or lets something happen a second time. The command asks for
// a confirmation first.
func Hazardous(as string) bool {
	return as == AsSucceeded || as == AsRejected || as == AsFree || as == AsStepNotDone
}

// As returns the name of a resolution; empty for none.
func (r *Resolution) As() string {
	switch {
	case r.Resume:
		return AsResume
	case r.Succeed:
		return AsSucceeded
	case r.Reject:
		return AsRejected
	case r.Free:
		return AsFree
	}
	return map[staged.StepOutcome]string{staged.StepDone: AsStepDone, staged.StepRejected: AsStepRejected, staged.StepNotDone: AsStepNotDone}[r.Step]
}

// Reservation is an amount of a limit that is reserved (package limits).
type Reservation struct {
	// Name is that of the limits, Limit the key of the limit, ID the reservation's.
	Name, Limit, ID string
	Amount          int64
	Created         time.Time
}

// Reserved iterates over what the operation's owner reserved of limits while the operation ran, and what is
// still reserved: the earliest first. An operation that ends without its remaining steps leaves its
// reservations behind. Holdfast does not know which operation made a reservation, so others of the same
// owner and the same time are among them. It reads 500 at a time, and ends at the first error.
//
// Errors: [holdfast.ErrDenied], [holdfast.ErrSchema], errors of the driver.
func (o *Operators[Tx]) Reserved(ctx context.Context, op *staged.Operation) iter.Seq2[Reservation, error] {
	return core.Pages(nil, Reservation{Created: op.Created}, listPage, func(after Reservation) ([]Reservation, error) {
		rows, err := o.sql.reserved.Query(ctx, o.ledger.Access.Pool, op.Owner, after.Created.UnixMicro(), []byte(after.Name), []byte(after.ID), op.Moved.UnixMicro(), listPage)
		if err != nil {
			return nil, o.ledger.Explain(err)
		}
		return core.Collect(rows, func(row core.Row) (r Reservation, err error) {
			var name, limit, id []byte
			var at int64
			err = row.Scan(&name, &limit, &id, &r.Amount, &at)
			r.Name, r.Limit, r.ID, r.Created = string(name), string(limit), string(id), time.UnixMicro(at)
			return r, err
		})
	})
}
