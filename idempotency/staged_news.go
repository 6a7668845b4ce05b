package idempotency

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/core"
)

// MaxNewsID and MaxNewsKind bound News, in bytes.
const (
	MaxNewsID   = 255
	MaxNewsKind = 128
)

// News is what a provider says later about an operation: a webhook, a line of a
// settlement report.
type News struct {
	// ID is the provider's for this event: the same event is taken once. 1 to
	// 255 bytes. Required.
	ID string
	// Kind is the provider's, such as "refund.failed"; at most 128 bytes.
	Kind string
	// Body is kept with the operation until it is erased; at most Options.MaxResult.
	Body []byte

	// ProviderKey finds the operation by the key that the provider was given,
	// where it repeats that; otherwise Ref does.
	ProviderKey string
	Ref         Ref

	// Settles says what the event means for an outside call that has begun and
	// is not known to have ended; default: nothing. With it an operation that
	// was parked at that step goes on.
	Settles Settles
	// Step is the call's; default: the one that ProviderKey belongs to.
	Step string
	// Result is the step's answer for SettlesDone: what its function would
	// have returned. Rejection is the answer for SettlesRejected.
	Result    any
	Rejection *Rejection
}

// Settles is what news, or an operator, says about an outside call.
type Settles int

// What became of an outside call.
const (
	SettlesNothing Settles = iota
	// SettlesDone: it was done, with a result.
	SettlesDone
	// SettlesRejected: it was refused for good.
	SettlesRejected
	// SettlesNotDone: it was not done and will not be; it may be made again.
	SettlesNotDone
)

// News takes down what the provider says, once for each ID, in one transaction
// with fn, which may be nil: fn books what follows from it, also when the
// operation has ended long ago, as with a refund that fails after its success.
// New is false, and fn does not run, when the event was there already.
//
// fn is bound by what [Do] says of functions. Errors: [ErrNotFound], [ErrState]
// when the news settles a step that has not begun or whose answer is another,
// [ErrUnknown], [holdfast.ErrInvalid], fn's.
func (s *Store[Tx]) News(ctx context.Context, n News, fn func(ctx context.Context, tx Tx, op Operation) error) (isNew bool, err error) {
	ctx, span := tell(ctx, s.access.Trace, "staged.news", "")
	defer func() { span.End(err, func(err error) string { return outcomeOfNews(isNew, err) }) }()
	r := newStagedRows(s)
	key, err := r.concerns(ctx, &n)
	if err != nil {
		return false, err
	}
	body, err := r.pack(key, n.Body)
	if err != nil {
		return false, err
	}
	o := &Operators[Tx]{rows: r}
	sent := false // and its commit is in doubt
	err = r.write(ctx, func(ctx context.Context, tx Tx, q core.Querier) error {
		row, err := r.touch(ctx, q, key)
		if err != nil {
			return err
		}
		var one int
		there, err := r.sql.newsLook.QueryRow(ctx, q, []any{&one}, key[:], []byte(n.ID))
		if err != nil || there {
			isNew = there && sent
			return err
		}
		if _, err := r.sql.newsInsert.Exec(ctx, q, key[:], []byte(n.ID), n.Kind, body); err != nil {
			return err
		}
		if n.Settles != SettlesNothing {
			if err := r.settleStep(ctx, q, key, row, "news", n.Step, n.Settles, n.Result, n.Rejection); err != nil {
				return err
			}
		}
		if fn != nil {
			op, err := o.show(ctx, q, key)
			if err != nil {
				return err
			}
			if err := fn(ctx, tx, *op); err != nil {
				return &funcError{err}
			}
		}
		isNew, sent = true, true
		return nil
	})
	return isNew && err == nil, err
}

// concerns checks news and finds its operation, and its step by the provider's key.
func (s *stagedRows[Tx]) concerns(ctx context.Context, n *News) (key hash, err error) {
	o := &s.store.options
	switch {
	case n.ID == "" || len(n.ID) > MaxNewsID:
		return key, invalid("News.ID", fmt.Sprintf("has %d bytes, not 1 to %d", len(n.ID), MaxNewsID))
	case cut(n.Kind, MaxNewsKind) != n.Kind:
		return key, invalid("News.Kind", fmt.Sprintf("is not at most %d bytes of UTF-8 without NUL", MaxNewsKind))
	case len(n.Body) > o.MaxResult:
		return key, invalid("News.Body", fmt.Sprintf("has %d bytes, Options.MaxResult is %d", len(n.Body), o.MaxResult))
	case n.Settles == SettlesRejected && n.Rejection == nil:
		return key, invalid("News.Rejection", "is missing")
	case n.ProviderKey == "":
		return s.store.hashOf(n.Ref), o.checkRef(n.Ref)
	}
	var b []byte
	var step string
	found, err := s.sql.stepFind.QueryRow(ctx, s.store.access.Pool, []any{&b, &step}, n.ProviderKey, o.Namespace)
	switch {
	case err != nil:
		return key, s.explain(err)
	case !found:
		return key, ErrNotFound
	case n.Step == "":
		n.Step = step
	}
	return hash(b), nil
}

// touch locks the row until the transaction ends.
func (s *stagedRows[Tx]) touch(ctx context.Context, q core.Querier, key hash) (*stagedRow, error) {
	if _, err := s.sql.touch.Exec(ctx, q, key[:]); err != nil {
		return nil, err
	}
	return s.found(ctx, q, key)
}

// settleStep writes down what became of an outside call, and lets an operation that
// was parked at it go on. The row is locked.
func (s *stagedRows[Tx]) settleStep(ctx context.Context, q core.Querier, key hash, row *stagedRow, action, name string, how Settles, result any, rej *Rejection) error {
	step, err := s.step(ctx, q, key, name)
	if err != nil {
		return err
	}
	state, answer := stepNotDone, any(nil)
	switch how {
	case SettlesDone:
		state, answer = stepDone, result
	case SettlesRejected:
		state, answer = stepRejected, rej
	}
	switch {
	case step == nil:
		return &StateError{Action: action, Step: name, Hint: "it has not begun: name the step whose outcome is unknown"}
	case step.state == state && step.state != stepNotDone: // it is known already
		if row.state != parked || row.step != name {
			return nil
		}
		return s.goesOn(ctx, q, key, row, name)
	case step.state != stepBegun:
		return &StateError{Action: action, Step: name, State: stepStates[step.state], Hint: "its answer is known and does not change"}
	case row.state != pending && row.state != parked:
		return &StateError{Action: action, State: State(row.state), Hint: "it has ended; final states do not change"}
	case row.state == pending && row.owner != nil && how == SettlesNotDone:
		return &StateError{Action: action, State: State(row.state), Hint: "a worker is at it: wait until its lease has ended"}
	}
	var b []byte
	if state != stepNotDone {
		if b, err = s.pack(key, answer); err != nil {
			return err
		}
	}
	if _, err := s.sql.stepEnd.Exec(ctx, q, key[:], name, state, nullable(b)); err != nil {
		return err
	}
	return s.goesOn(ctx, q, key, row, name)
}

// goesOn: an operation that is parked at a step whose answer is known goes on,
// and one that is pending is not parked at it when its lease ends.
func (s *stagedRows[Tx]) goesOn(ctx context.Context, q core.Querier, key hash, row *stagedRow, name string) (err error) {
	switch row.state {
	case parked:
		_, err = s.sql.settle.Exec(ctx, q, key[:])
	case pending:
		_, err = s.sql.known.Exec(ctx, q, key[:], name)
	}
	return err
}
