package operations

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// functionMisbehaves uses functions that end, begin, break and change their transaction in any order, by SQL and
// through their handle, with one effect at some place, and then succeed, fail, reject or panic. Whatever
// they do, a well-behaved function for the same key afterwards does not repeat what stands, and what Holdfast says
// of the key is true.
func functionMisbehaves[Tx any](e *env[Tx]) {
	type function = func(ctx context.Context, tx Tx) (string, error)
	calls := map[string]func(ctx context.Context, s *idempotency.Store[Tx], key string, fn function) (idempotency.Result[string], error){
		"Do": func(ctx context.Context, s *idempotency.Store[Tx], key string, fn function) (idempotency.Result[string], error) {
			return idempotency.Do(ctx, s, conformance.Op(key), fn)
		},
		"DoTx": func(ctx context.Context, s *idempotency.Store[Tx], key string, fn function) (r idempotency.Result[string], err error) {
			var verdict error
			err = e.DB.InTx(ctx, func(ctx context.Context, tx Tx) error {
				r, verdict = idempotency.DoTx(ctx, s, tx, conformance.Op(key), fn)
				if errors.As(verdict, new(*idempotency.Rejection)) {
					return nil // it counts once it is committed
				}
				return verdict
			})
			return r, errors.Join(err, verdict)
		},
	}
	for name, call := range calls {
		for seed := range uint64(conformance.Misbehaved) {
			key := fmt.Sprintf("%s %d", name, seed)
			m := conformance.Misbehaving(&e.Env, key, seed)
			s := e.Store(idempotency.Options{})
			first := conformance.Recovered(func() error {
				ctx, cancel := context.WithCancel(e.Ctx)
				defer cancel()
				_, err := call(ctx, s, key, m.Function(cancel))
				return err
			})
			judge(m, first, func() (idempotency.Result[string], error) {
				return call(e.Ctx, e.Store(idempotency.Options{}), key, func(ctx context.Context, tx Tx) (string, error) {
					return "well", e.Effect(ctx, tx, key)
				})
			})
		}
	}
}

// judge looks at what the function has left, lets the next call come, and compares.
func judge[Tx any](m *conformance.Misbehavior[Tx], first error, next func() (idempotency.Result[string], error)) {
	var rej *idempotency.Rejection
	stood := m.Effects(m.Key)
	doubtful := errors.Is(first, idempotency.ErrUnknown) || errors.Is(first, holdfast.ErrTxLost)
	rejected := errors.As(first, &rej) && !doubtful
	r, second := next()
	says := fmt.Sprintf("%v: it returned %v and left %d effects; then %v, %v, and %d effects", m, first, stood, r, second, m.Effects(m.Key))
	switch {
	case m.Effects(m.Key) > 1:
		m.Errorf("twice: %s", says)
	case first == nil && (m.Did != (stood == 1) || second != nil || r.Outcome != idempotency.Replayed || r.Value != "misbehaved"):
		m.Errorf("it was done: %s", says)
	case rejected && (stood != 0 || !errors.As(second, &rej)):
		m.Errorf("it was rejected: %s", says)
	case second == nil && r.Outcome == idempotency.Executed && (stood != 0 || m.Effects(m.Key) != 1):
		m.Errorf("it was done again: %s", says)
	case second == nil && r.Outcome == idempotency.Replayed && first != nil && (!doubtful || m.Did != (stood == 1)):
		m.Errorf("it was not done: %s", says)
	case second != nil && !errors.As(second, &rej) && !errors.Is(second, idempotency.ErrUnknown):
		m.Errorf("the next call fails: %s", says)
	case errors.As(second, &rej) && !errors.Is(second, idempotency.ErrUnknown) && stood != 0:
		m.Errorf("it stands and is rejected: %s", says)
	}
}
