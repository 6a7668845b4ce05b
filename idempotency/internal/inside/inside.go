// Package inside shows Holdfast's packages the inside of an idempotency.Store, which the API does not show.
package inside

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
)

// Of returns the inside of a store.
func Of[Tx any](s *idempotency.Store[Tx]) Store[Tx] {
	return once.OfStore(s).(Store[Tx]) //nolint:forcetypeassert // package idempotency returns it
}

// Store is the inside of a store.
type Store[Tx any] interface { //nolint:interfacebloat // it is the inside of one type
	// DB returns the store's DB.
	DB() *holdfast.DB[Tx]
	// Access returns the access of the store's DB.
	Access() access.Access[Tx]
	// Check checks op.
	Check(op idempotency.Op) (once.Checked, error)
	// KeepsRejections returns the store for calls whose rejections are kept as long as results.
	KeepsRejections() *idempotency.Store[Tx]
	// Void is Store.Void in the transaction of q.
	Void(ctx context.Context, q core.Querier, op idempotency.Op, reason string) (idempotency.Outcome, error)
	// CheckName checks the names that identify an operation.
	CheckName(owner, name, key string) error
	// ID identifies the row of an owner's operation.
	ID(owner, name, key string) once.ID
	// Enter refuses an operation that ctx already runs under.
	Enter(ctx context.Context, key once.Hash) (context.Context, error)
	// InFunction reports whether ctx is the context of a function of Do or DoTx.
	InFunction(ctx context.Context) bool
	// Encode returns a value in its stored form for a place, with the name of that form.
	Encode(key once.Hash, at once.Place, v any) (form string, stored []byte, err error)
	// EncodeBack is Encode, and decodes the value again into back. It fails for a value that does not
	// decode, so that such a value is never stored.
	EncodeBack(key once.Hash, at once.Place, v, back any) (form string, stored []byte, err error)
	// Decode reads the stored value of a place into the value that to points to. It returns a *ResultError
	// if it cannot read the stored value.
	Decode(key once.Hash, at once.Place, form string, stored []byte, to any) error
	// Lives returns the ResultTTL and the KeyTTL in µs; nil for ever.
	Lives() []any
	// RefusedLives are the Lives of a rejection of Do.
	RefusedLives() []any
	// Identify checks the names of an operation, and needs no request. compare is nil if op has none.
	Identify(op idempotency.Op) (id once.ID, compare func(version int, stored []byte) error, err error)
	// Admit counts a new key of owner against the store's bounds, or returns a *TooManyError. claimed is 1 if
	// the transaction of q has inserted the key's row already, and 0 otherwise.
	Admit(ctx context.Context, q core.Querier, owner string, claimed int) error
	// GiveBack takes back what Admit has counted for a call that stored nothing.
	GiveBack(owner string)
	// InTx runs f in the caller's transaction. Each wait of f for a lock is bounded by the wait of the
	// call, or by the store's. After an error other than keep's, it rolls the transaction back and adds
	// what the caller has to do next.
	InTx(ctx context.Context, tx Tx, wait time.Duration, keep func(error) bool, f func(q core.Querier) error) error
	// Ledger returns the tables of the staged operations, with the store's bounds.
	Ledger() *ledger.Ledger[Tx]
}
