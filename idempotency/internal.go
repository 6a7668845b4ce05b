package idempotency

import (
	"cmp"
	"context"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
)

// Holdfast's own packages, which keep their operations in the store's namespace, see a store from the inside
// through package inside: the API does not show it.
var _ = once.RegisterStore(func(s any) any {
	return s.(interface{ inner() any }).inner() //nolint:forcetypeassert // it is a *Store
})

func (s *Store[Tx]) inner() any { return internals[Tx]{s} }

// internals is an inside.Store.
type internals[Tx any] struct{ s *Store[Tx] }

// DB returns the store's DB.
func (i internals[Tx]) DB() *holdfast.DB[Tx] { return i.s.db }

// Access returns the access of the store's DB.
func (i internals[Tx]) Access() access.Access[Tx] { return i.s.access }

// Check checks op.
func (i internals[Tx]) Check(op Op) (once.Checked, error) {
	c, err := i.s.options.check(op)
	if err != nil {
		return once.Checked{}, err
	}
	return c.checked(), nil
}

func (c *call) checked() once.Checked {
	return once.Checked{
		ID: once.ID{Owner: c.op.Owner, Hash: c.hash}, Key: []byte(c.op.Key), Wait: c.wait,
		Fingerprint: c.fingerprints.own, FingerprintVersion: c.fingerprints.version, Compare: c.fingerprints.compare,
	}
}

// KeepsRejections returns the store for calls whose rejections are kept as long as results.
func (i internals[Tx]) KeepsRejections() *Store[Tx] {
	kept := *i.s // flights are shared, as in WithLease
	kept.options.RejectionTTL = cmp.Or(kept.options.KeyTTL, holdfast.Forever)
	return &kept
}

// Void is Store.Void in the transaction of q.
func (i internals[Tx]) Void(ctx context.Context, q core.Querier, op Op, reason string) (Outcome, error) {
	s, c, no, err := i.s.voiding(ctx, op, reason)
	if err != nil {
		return 0, err
	}
	j := &joined[Tx]{s: s, p: &pending{call: c, deadline: time.Now().Add(c.wait)}, q: q, attempt: once.RandomID()}
	var none Tx // there is no lease
	r, o, err := j.do(ctx, none, func() (storedResult, error) { return no, nil })
	switch {
	case err != nil:
		return 0, s.explainTx(err, true)
	case o == Replayed:
		return s.voided(c, r)
	}
	return o, nil
}

// CheckName checks the names that identify an operation.
func (i internals[Tx]) CheckName(owner, name, key string) error {
	_, err := i.s.scope(Op{Owner: owner, Name: name, Key: key})
	return err
}

// ID identifies the row of an owner's operation.
func (i internals[Tx]) ID(owner, name, key string) once.ID {
	return once.ID{Owner: owner, Hash: once.HashKey(i.s.options.Namespace, owner, name, i.s.options.HashKeys.Key(key))}
}

// Enter refuses an operation that ctx already runs under.
func (i internals[Tx]) Enter(ctx context.Context, key once.Hash) (context.Context, error) {
	return once.Enter(ctx, i.s, key, false)
}

// InFunction reports whether ctx is the context of a function of Do or DoTx.
func (internals[Tx]) InFunction(ctx context.Context) bool {
	return once.Under[*once.Flights[record]](ctx)
}

// Encode returns a value in its stored form for a place, with the name of that form.
func (i internals[Tx]) Encode(key once.Hash, at once.Place, v any) (form string, stored []byte, err error) {
	out, err := i.s.options.encode(&call{hash: key, place: at}, succeeded, v)
	return out.codec, out.result, err
}

// EncodeBack is Encode, and decodes the value again into back. It fails for a value that does not
// decode, so that such a value is never stored.
func (i internals[Tx]) EncodeBack(key once.Hash, at once.Place, v, back any) (form string, stored []byte, err error) {
	c := &call{hash: key, place: at}
	out, err := i.s.options.encode(c, succeeded, v)
	if err == nil {
		if err = i.s.options.read(c, out, back); err != nil {
			err = undecodable(c.what(succeeded), err)
		}
	}
	return out.codec, out.result, err
}

// Decode reads the stored value of a place into the value that to points to. It returns a *ResultError
// if it cannot read the stored value.
func (i internals[Tx]) Decode(key once.Hash, at once.Place, form string, stored []byte, to any) error {
	return i.s.options.decode(&call{hash: key, place: at}, storedResult{state: succeeded, codec: form, result: stored}, to)
}

// Lives returns the ResultTTL and the KeyTTL in µs; nil for ever.
func (i internals[Tx]) Lives() []any {
	return []any{ttl(i.s.options.ResultTTL), ttl(i.s.options.KeyTTL)}
}

// RefusedLives are the Lives of a rejection of Do.
func (i internals[Tx]) RefusedLives() []any {
	result, key := i.s.options.refusedFor()
	return []any{ttl(result), ttl(key)}
}

// Identify checks the names of an operation, and needs no request. compare is nil if op has none.
func (i internals[Tx]) Identify(op Op) (id once.ID, compare func(version int, stored []byte) error, err error) {
	if op.Request == nil && op.Fingerprint == nil {
		op.NoFingerprint = true
	}
	c, err := i.s.options.check(op)
	if err != nil {
		return id, nil, err
	}
	of := c.checked()
	if op.NoFingerprint {
		of.Compare = nil
	}
	return of.ID, of.Compare, nil
}

// Admit counts a new key of owner against the store's bounds, or returns a *TooManyError. claimed is 1 if
// the transaction of q has inserted the key's row already, and 0 otherwise.
func (i internals[Tx]) Admit(ctx context.Context, q core.Querier, owner string, claimed int) error {
	return i.s.admit(ctx, q, owner, claimed)
}

// GiveBack takes back what Admit has counted for a call that stored nothing.
func (i internals[Tx]) GiveBack(owner string) { i.s.ceilings.giveBack(owner) }

// InTx runs f in the caller's transaction. Each wait of f for a lock is bounded by the wait of the
// call, or by the store's. After an error other than keep's, it rolls the transaction back and adds
// what the caller has to do next.
func (i internals[Tx]) InTx(ctx context.Context, tx Tx, wait time.Duration, keep func(error) bool, f func(q core.Querier) error) error {
	s := i.s
	q, err := s.access.Join(tx)
	if err != nil {
		return err
	}
	if err = s.access.Alive(ctx, q); err == nil {
		_, err = s.sql.claim.Bounded(ctx, q, min(wait, s.options.LockTimeout), func() (bool, error) { return true, f(q) })
	}
	if err == nil || keep(err) {
		return err
	}
	clean := s.abandon(ctx, tx)
	return s.explainTx(err, clean)
}

// Ledger returns the tables of the staged operations, with the store's bounds.
func (i internals[Tx]) Ledger() *ledger.Ledger[Tx] { return ledger.New(i.s.db, i.s.bounds()) }
