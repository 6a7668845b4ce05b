package idempotency

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Bounds of what is recorded of an intervention, in bytes.
const (
	MaxBy           = 255
	MaxIntervention = 500
)

// Who says who intervenes and why. Both are required and recorded with the
// operation; By has at most 255 bytes, Reason 500.
type Who struct{ By, Reason string }

func (w Who) check() error {
	for field, v := range map[string]string{"Who.By": w.By, "Who.Reason": w.Reason} {
		limit := MaxIntervention
		if field == "Who.By" {
			limit = MaxBy
		}
		if v == "" || cut(v, limit) != v {
			return invalid(field, fmt.Sprintf("is not 1 to %d bytes of UTF-8 without NUL: it is kept for those who ask later", limit))
		}
	}
	return nil
}

// Resolution is what an operator found out about an operation whose outcome was
// unknown. Exactly one of its fields is to be set.
type Resolution struct {
	// Step says what became of the outside call that the operation is parked at
	// (SettlesDone with StepResult, SettlesRejected with Rejection,
	// SettlesNotDone); then the operation goes on from there. Staged only.
	Step Settles
	// StepResult is what the step's function would have returned.
	StepResult any
	Rejection  *Rejection

	// Resume lets a staged operation go on that is parked at no step: its
	// attempts were used up, or the database was restored. A step that was begun
	// is not resumed but settled.
	Resume bool

	// Succeed ends the operation with Result, Reject with Rejection.
	Succeed bool
	Result  any
	Reject  bool

	// Free deletes the record of a Do that committed without a result, so that
	// the key may be executed again. Only where nothing of it stands.
	Free bool
}

func (r *Resolution) check() error {
	n := 0
	for _, is := range []bool{r.Step != SettlesNothing, r.Resume, r.Succeed, r.Reject, r.Free} {
		if is {
			n++
		}
	}
	switch {
	case n != 1:
		return invalid("Resolution", "set exactly one of Step, Resume, Succeed, Reject and Free")
	case (r.Reject || r.Step == SettlesRejected) != (r.Rejection != nil):
		return invalid("Resolution.Rejection", "goes with Reject or with SettlesRejected, and with nothing else")
	}
	return nil
}

func (r *Resolution) action() string {
	switch {
	case r.Resume:
		return "resume"
	case r.Succeed:
		return "resolve as succeeded"
	case r.Reject:
		return "resolve as rejected"
	case r.Free:
		return "free the key"
	}
	return [...]string{SettlesDone: "resolve step as done", SettlesRejected: "resolve step as rejected", SettlesNotDone: "resolve step as not done"}[r.Step]
}

// Resolve settles an operation that is unknown, and records who did it and why in
// the same transaction. Final states do not change: they are [ErrState], as is
// what does not fit the operation.
//
// Errors: [ErrState], [ErrNotFound], [ErrUnknown], [holdfast.ErrInvalid], the driver's.
func (o *Operators[Tx]) Resolve(ctx context.Context, ref Ref, r Resolution, who Who) error {
	if err := firstOf(r.check(), firstOf(who.check(), o.rows.store.options.checkRef(ref))); err != nil {
		return err
	}
	key := o.rows.store.hashOf(ref)
	return o.intervene(ctx, key, r.action(), who, func(ctx context.Context, q core.Querier) error {
		row, err := o.rows.touch(ctx, q, key)
		if errors.Is(err, ErrNotFound) {
			return o.resolveRecord(ctx, q, key, r)
		}
		if err != nil {
			return err
		}
		switch {
		case row.state != parked:
			return &StateError{Action: r.action(), State: State(row.state), Hint: "only what is unknown can be resolved"}
		case r.Free:
			return &StateError{Action: r.action(), State: Parked, Hint: "a staged operation keeps its key: settle its step, or reject it"}
		case r.Resume && row.step != "":
			return &StateError{Action: r.action(), Step: row.step, State: Begun, Hint: "say what became of it: set Resolution.Step"}
		case r.Step != SettlesNothing && row.step == "":
			return &StateError{Action: r.action(), State: Parked, Hint: "it is parked at no step: set Resume, Succeed or Reject"}
		case r.Step != SettlesNothing:
			return o.rows.settleStep(ctx, q, key, row, r.action(), row.step, r.Step, r.StepResult, r.Rejection)
		case r.Resume:
			_, err = o.rows.sql.settle.Exec(ctx, q, key[:])
			return err
		}
		state, b, err := o.final(key, r)
		if err == nil {
			_, err = o.rows.sql.closing.Exec(ctx, q, key[:], state, b)
		}
		return err
	})
}

func (o *Operators[Tx]) final(key hash, r Resolution) (int, []byte, error) {
	if r.Reject {
		b, err := o.rows.pack(key, r.Rejection)
		return rejected, b, err
	}
	b, err := o.rows.pack(key, r.Result)
	return succeeded, b, err
}

// resolveRecord settles a claim of Do that was committed without a result.
func (o *Operators[Tx]) resolveRecord(ctx context.Context, q core.Querier, key hash, r Resolution) error {
	s := o.rows.store
	d := &s.dialect().Staged
	state, err := o.recordState(ctx, q, key)
	if err != nil {
		return err
	}
	switch {
	case state != claimed:
		return &StateError{Action: r.action(), State: State(state), Hint: "only what is unknown can be resolved"}
	case r.Resume || r.Step != SettlesNothing:
		return &StateError{Action: r.action(), State: Parked, Hint: "it is no staged operation: set Succeed, Reject or Free"}
	case r.Free:
		_, err = o.compile("operators.free", d.RecordFree).Exec(ctx, q, key[:])
		return err
	}
	v, final := r.Result, succeeded
	if r.Reject {
		v, final = r.Rejection, rejected
	}
	out, err := s.options.verdict(&claim{hash: key}, final, v)
	if err == nil {
		_, err = o.compile("operators.close", d.RecordClose).Exec(ctx, q, key[:], final, out.result, out.codec)
	}
	return err
}

func (o *Operators[Tx]) recordState(ctx context.Context, q core.Querier, key hash) (state int, err error) {
	found, err := o.compile("operators.touch", o.rows.store.dialect().Staged.RecordTouch).QueryRow(ctx, q, []any{&state}, key[:])
	if err == nil && !found {
		err = ErrNotFound
	}
	return state, err
}

func (o *Operators[Tx]) compile(name, text string) core.Stmt {
	s := o.rows.store
	return s.dialect().Compile(name, stagedTables(s.access.Table, s.dialect().Now).Replace(text))
}

// intervene runs f and records it, in one transaction.
func (o *Operators[Tx]) intervene(ctx context.Context, key hash, action string, who Who, f func(ctx context.Context, q core.Querier) error) error {
	id := newOwner()
	sent := false
	return o.rows.write(ctx, func(ctx context.Context, _ Tx, q core.Querier) error {
		if sent {
			if done, err := o.recorded(ctx, q, key, id); err != nil || done {
				return err
			}
		}
		if err := f(ctx, q); err != nil {
			return err
		}
		sent = true
		_, err := o.rows.sql.intervene.Exec(ctx, q, id, key[:], o.rows.store.options.Namespace, action, who.By, who.Reason)
		return err
	})
}

// recorded finds an intervention whose commit is in doubt: it waits for the rows
// that the transaction in doubt has locked, then looks.
func (o *Operators[Tx]) recorded(ctx context.Context, q core.Querier, key hash, id []byte) (bool, error) {
	if _, err := o.rows.sql.touch.Exec(ctx, q, key[:]); err != nil {
		return false, err
	}
	if _, err := o.recordState(ctx, q, key); err != nil && !errors.Is(err, ErrNotFound) {
		return false, err
	}
	var one int
	return o.rows.sql.intervened.QueryRow(ctx, q, []any{&one}, id)
}

// Erase drops the request, the results of the operation and of its steps and the
// bodies of its news. The key stays, so it is not executed again; duplicates get
// [ErrExpired]. Only an operation that has ended can be erased: [ErrState].
// Interventions stay, and so does the key's text: derive keys of what may be kept.
//
// Errors: [ErrState], [ErrNotFound], [ErrUnknown], [holdfast.ErrInvalid], the driver's.
func (o *Operators[Tx]) Erase(ctx context.Context, ref Ref, who Who) error {
	if err := firstOf(who.check(), o.rows.store.options.checkRef(ref)); err != nil {
		return err
	}
	key := o.rows.store.hashOf(ref)
	const hint = "only what has ended, and was not erased before, can be erased: resolve it first"
	return o.intervene(ctx, key, "erase", who, func(ctx context.Context, q core.Querier) error {
		row, err := o.rows.touch(ctx, q, key)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		if row == nil {
			state, err := o.recordState(ctx, q, key)
			if err != nil {
				return err
			}
			if state != succeeded && state != rejected {
				if state == claimed {
					state = parked
				}
				return &StateError{Action: "erase", State: State(state), Hint: hint}
			}
			_, err = o.compile("operators.erase", o.rows.store.dialect().Staged.RecordErase).Exec(ctx, q, key[:])
			return err
		}
		erased, err := o.rows.eraseOne(ctx, q, key[:])
		if err == nil && !erased {
			err = &StateError{Action: "erase", State: State(row.state), Hint: hint}
		}
		return err
	})
}

// eraseOne erases an operation that has ended, unless it was.
func (s *stagedRows[Tx]) eraseOne(ctx context.Context, q core.Querier, key []byte) (bool, error) {
	res, err := s.sql.erase.Exec(ctx, q, key)
	if err != nil || res.Affected != 1 {
		return false, err
	}
	if _, err = s.sql.eraseSteps.Exec(ctx, q, key); err == nil {
		_, err = s.sql.eraseNews.Exec(ctx, q, key)
	}
	return true, err
}
