package staged

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/inside"
	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/core"
)

// transitions are the writes to the tables of the staged operations. Each method is one transition.
type transitions[Tx any] struct {
	*ledger.Ledger[Tx]
	store   inside.Store[Tx]
	options idempotency.Options
}

func newTransitions[Tx any](s *idempotency.Store[Tx]) *transitions[Tx] {
	in := inside.Of(s)
	return &transitions[Tx]{in.Ledger(), in, s.Options()}
}

// claim takes an operation that is due. If it is sent twice, the second time finds its own term.
func (s *transitions[Tx]) claim(ctx context.Context, id once.ID, attempt []byte, holder string, lease time.Duration, seen int64, resultType string) (row *ledger.Row, err error) {
	request := requestID(ctx)
	err = s.Write(ctx, func(ctx context.Context, _ Tx, q core.Querier) (err error) {
		if _, err = s.SQL.Claim.Exec(ctx, q, id.Args(attempt, holder, lease.Microseconds(), seen, resultType, core.Program(), request)...); err == nil {
			row, err = s.Find(ctx, q, id)
		}
		return err
	})
	return row, err
}

// parkDue parks an operation whose worker is gone. If it is sent twice, the second time finds
// another token.
func (s *transitions[Tx]) parkDue(ctx context.Context, id once.ID, seen *ledger.Row, reason string) (row *ledger.Row, err error) {
	err = s.Write(ctx, func(ctx context.Context, _ Tx, q core.Querier) (err error) {
		if _, err = s.SQL.ParkDue.Exec(ctx, q, id.Args(seen.Token, reason, seen.Step)...); err == nil {
			row, err = s.Find(ctx, q, id)
		}
		return err
	})
	return row, err
}

// finish ends the operation. If it is sent twice, the second time finds the end with its own
// token.
func (s *transitions[Tx]) finish(ctx context.Context, r *Run[Tx], state int, result []byte) error {
	end := s.SQL.Finish.With(r.id.Args(append([]any{r.attempt, r.token, state, result}, s.lives()...)...)...)
	err := s.Send(ctx, once.Transaction[Tx]{Then: func(context.Context, Tx, core.Querier, core.Reply) (core.Bound, error) { return end, nil }})
	if !errors.Is(err, holdfast.ErrTxLost) {
		return err
	}
	return s.move(ctx, r, "", func(now *ledger.Row) bool { return now.State == state && now.Token == r.token },
		func(ctx context.Context, q core.Querier) (core.Result, error) {
			a := end.Run(ctx, q)
			return a.Result, a.Err
		})
}

// lives returns the ResultTTL and the KeyTTL of an operation that ends, in µs; nil for ever.
func (s *transitions[Tx]) lives() []any { return s.store.Lives() }

// release gives the operation back for another attempt after a pause. uncounted is 1 for an attempt
// that does not count.
func (s *transitions[Tx]) release(ctx context.Context, r *Run[Tx], pause time.Duration, reason string, uncounted int) error {
	return s.move(ctx, r, "", func(now *ledger.Row) bool { return now.Attempt == nil && now.Token == r.token },
		func(ctx context.Context, q core.Querier) (core.Result, error) {
			if err := s.refer(ctx, q, r); err != nil {
				return core.Result{}, err
			}
			return s.SQL.Release.Exec(ctx, q, r.id.Args(r.attempt, r.token, pause.Microseconds(), reason, uncounted)...)
		})
}

// park leaves the operation to a person, unless a provider event with the step's result arrived
// during the call. row is then that result.
func (s *transitions[Tx]) park(ctx context.Context, r *Run[Tx], step, reason string) (row *ledger.StepRow, err error) {
	return row, s.move(ctx, r, "", func(now *ledger.Row) bool { return now.State == ledger.Parked },
		func(ctx context.Context, q core.Querier) (core.Result, error) {
			if _, err := s.SQL.Touch.Exec(ctx, q, r.id.Args()...); err != nil {
				return core.Result{}, err
			}
			found, err := s.Step(ctx, q, r.id, step)
			if err != nil {
				return core.Result{}, err
			}
			if err := s.refer(ctx, q, r); err != nil {
				return core.Result{}, err
			}
			if row = nil; found != nil && (found.State == ledger.StepDone || found.State == ledger.StepRejected) {
				row = found
				return core.Result{Affected: 1}, nil
			}
			return s.SQL.Park.Exec(ctx, q, r.id.Args(r.attempt, r.token, reason)...)
		})
}

// accept leaves the operation to the provider, which settles the step later, unless an event with the
// step's result arrived during the call. row is then that result.
func (s *transitions[Tx]) accept(ctx context.Context, r *Run[Tx], step, provider string, a *acceptedError) (row *ledger.StepRow, err error) {
	within := a.within.Microseconds()
	return row, s.move(ctx, r, step, func(now *ledger.Row) bool { return now.Attempt == nil && now.Token == r.token },
		func(ctx context.Context, q core.Querier) (core.Result, error) {
			row = nil
			res, err := s.SQL.Renew.Exec(ctx, q, r.id.Args(r.attempt, r.token, r.lease.Microseconds())...)
			if err != nil || res.Affected != 1 {
				return res, err
			}
			found, err := s.Step(ctx, q, r.id, step)
			if err != nil {
				return core.Result{}, err
			}
			if found != nil && (found.State == ledger.StepDone || found.State == ledger.StepRejected) {
				row = found
				return res, s.refer(ctx, q, r)
			}
			if _, err := s.SQL.StepAccept.Exec(ctx, q, r.id.Args(step, provider, orNull(a.reference), within)...); err != nil {
				return core.Result{}, err
			}
			return s.SQL.Accept.Exec(ctx, q, r.id.Args(r.attempt, r.token, within)...)
		})
}

// renew extends the lease of a worker. It returns false if the operation is another worker's now.
func (s *transitions[Tx]) renew(ctx context.Context, r *Run[Tx], lease time.Duration) (bool, error) {
	res, err := s.SQL.Renew.Exec(ctx, s.Access.Pool, r.id.Args(r.attempt, r.token, lease.Microseconds())...)
	return res.Affected == 1, err
}

// orNull turns an empty text into a NULL.
func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// move runs one statement under the worker's token. If the statement matched no row, before
// decides from the row whether an earlier, ambiguous commit already did it.
func (s *transitions[Tx]) move(ctx context.Context, r *Run[Tx], step string, before func(*ledger.Row) bool, exec func(context.Context, core.Querier) (core.Result, error)) error {
	return s.Write(ctx, func(ctx context.Context, _ Tx, q core.Querier) error {
		res, err := exec(ctx, q)
		if err != nil || res.Affected == 1 {
			return err
		}
		now, err := s.Find(ctx, q, r.id)
		if err != nil || before(now) {
			return err
		}
		return &StaleError{Step: step, Token: r.token, Current: now.Token, State: seen(now)}
	})
}

// owning is the statement that locks the row for a step, and restarts the lease.
func (s *transitions[Tx]) owning(r *Run[Tx], current string, mode int, lease time.Duration) core.Bound {
	return s.SQL.Own.With(r.id.Args(r.attempt, r.token, current, mode, lease.Microseconds())...)
}

// own runs owning.
func (s *transitions[Tx]) own(ctx context.Context, q core.Querier, r *Run[Tx], name string) error {
	return s.owned(ctx, q, r, name, s.owning(r, "", ledger.ModeTakeOver, r.lease).Run(ctx, q))
}

// owned returns a *StaleError if the answer to owning says that another worker has the operation.
func (s *transitions[Tx]) owned(ctx context.Context, q core.Querier, r *Run[Tx], name string, a core.Reply) error {
	if a.Err != nil || a.Affected == 1 {
		return a.Err
	}
	now, err := s.Find(ctx, q, r.id)
	if err != nil {
		return err
	}
	return &StaleError{Step: name, Token: r.token, Current: now.Token, State: seen(now)}
}

// pack encodes a value in the stored form of results, after the name of its form. Only unpack at the
// same place reads it.
func (s *transitions[Tx]) pack(id once.ID, at once.Place, v any) ([]byte, error) {
	form, stored, err := s.store.Encode(id.Hash, at, v)
	return join(form, stored), err
}

// packBack is pack, and decodes the value again into back.
func (s *transitions[Tx]) packBack(id once.ID, at once.Place, v, back any) ([]byte, error) {
	form, stored, err := s.store.EncodeBack(id.Hash, at, v, back)
	return join(form, stored), err
}

// join puts the name of a form before what is stored in it.
func join(form string, stored []byte) []byte { return append([]byte(form+"\x00"), stored...) }

// packAs packs a result that an operator or an event gives in place of the function, and checks it
// against the stored type. field names the result in errors.
func (s *transitions[Tx]) packAs(id once.ID, at once.Place, resultType, field string, v any) ([]byte, error) {
	v, err := conform(resultType, v)
	if err != nil {
		return nil, once.Invalid(field, err.Error())
	}
	return s.pack(id, at, v)
}

// ofRequest, verdict, ofStep and ofEvent are the places of an operation's values.
var ofRequest = once.Place{ValueKind: once.StagedRequest}

func verdict(rejected bool) once.Place {
	if rejected {
		return once.Place{ValueKind: once.StagedRejection}
	}
	return once.Place{ValueKind: once.StagedResult}
}

func ofStep(step string, rejected bool) once.Place {
	if rejected {
		return once.Place{ValueKind: once.StepRejection, Name: step}
	}
	return once.Place{ValueKind: once.StepResult, Name: step}
}

func ofEvent(id string) once.Place { return once.Place{ValueKind: once.EventBody, Name: id} }

func (s *transitions[Tx]) unpack(id once.ID, at once.Place, stored []byte, to any) error {
	form, b, ok := bytes.Cut(stored, []byte{0})
	if !ok {
		return &idempotency.ResultError{Stored: "nothing", Err: errors.New("it was erased")}
	}
	return s.store.Decode(id.Hash, at, string(form), b, to)
}
