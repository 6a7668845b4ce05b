// Package orm shows Holdfast in the transactions of GORM, bun, sqlc and pgx. It
// is a module of its own, so that none of them is required by Holdfast.
//
// Each example does the same three things. Refund begins the transaction with
// the library and hands it to Holdfast. RefundBound has Holdfast begin it and
// binds the library to it. Settle begins it with the library, and Holdfast
// guards, locks and claims in it.
package orm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/sqllock"
)

// Refund is a row of refunds. Its key is made of the order and the refund's
// number; the table has no unique key, so a second run would be seen in it.
type Refund struct {
	OrderNo  string
	RefundNo string
	Cents    int64
}

// Order is a row of orders, which refuses to be refunded beyond what was paid.
type Order struct {
	OrderNo  string
	Paid     int64
	Refunded int64
}

// Settlement is a row of settlements: its unique key is the claim.
type Settlement struct {
	Merchant string `db:"merchant"`
	Day      string `db:"day"`
	Cents    int64  `db:"cents"`
}

// Payout is a row of payouts, the effect of a settlement.
type Payout struct {
	Merchant string
	Day      string
	Cents    int64
}

// ErrNoOrder means that the order is not there. To the libraries an update of no
// row is no error.
var ErrNoOrder = errors.New("orm: no such order")

// Holdfast is what the examples have of it; Tx is *sql.Tx or pgx.Tx.
type Holdfast[Tx any] struct {
	DB          *holdfast.DB[Tx]
	Store       *idempotency.Store[Tx]
	Locks       *sqllock.Locker[Tx]
	Settlements *idempotency.Table[Settlement, Tx]
}

// Open opens it on the pool that the library works on.
func Open[Tx any](ctx context.Context, db *holdfast.DB[Tx]) (*Holdfast[Tx], error) {
	h := &Holdfast[Tx]{DB: db}
	var err error
	if h.Store, err = idempotency.New(ctx, db, idempotency.Options{SingleTenant: true}); err != nil {
		return nil, err
	}
	if h.Settlements, err = idempotency.NewTable[Settlement](ctx, db, idempotency.TableSpec{
		Table: "settlements", Key: []string{"merchant", "day"}, Compare: []string{"cents"},
	}); err != nil {
		return nil, err
	}
	h.Locks, err = sqllock.New(ctx, db, sqllock.Options{})
	return h, err
}

// claim guards the transaction with the lease's term, locks the merchant and
// claims the settlement's row. These come first in a transaction.
func (h *Holdfast[Tx]) claim(ctx context.Context, tx Tx, s Settlement, term sqllock.Term) (idempotency.Outcome, error) {
	if err := h.Locks.Guard(ctx, tx, term); err != nil {
		return 0, err
	}
	if err := h.Locks.LockTx(ctx, tx, "merchant/"+s.Merchant, sqllock.AtMost(10*time.Second)); err != nil {
		return 0, err
	}
	res, err := h.Settlements.ClaimTx(ctx, tx, s)
	return res.Outcome, err
}

// Again runs a transaction that a library began again when the engine rolled it
// back. Do and InTx do so by themselves.
func Again[Tx any](ctx context.Context, db *holdfast.DB[Tx], transaction func() error) error {
	for attempt := 1; ; attempt++ {
		err := transaction()
		if !errors.Is(err, holdfast.ErrRetry) && !db.Retryable(err) || attempt == holdfast.DefaultAttempts {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(rand.N(time.Duration(attempt) * 10 * time.Millisecond)):
		}
	}
}

// unlessFinal is what the library's transaction function returns after DoTx: a
// rejection is a verdict to be committed, though it is an error to the caller.
func unlessFinal(err error) error {
	if rejection := (*idempotency.Rejection)(nil); errors.As(err, &rejection) {
		return nil
	}
	return err
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (r Refund) op() idempotency.Op {
	return idempotency.Op{Name: "refund", Key: idempotency.KeyOf(r.OrderNo, r.RefundNo), Request: r}
}

func (r Refund) check() error {
	if r.Cents <= 0 {
		return idempotency.Reject("amount", "a refund is of one cent at least")
	}
	return nil
}

func (r Refund) answer() string {
	return fmt.Sprintf("refund %s of %d cents for order %s", r.RefundNo, r.Cents, r.OrderNo)
}

// found is the check that no library makes.
func found(rows int64, err error) error {
	if err == nil && rows == 0 {
		return ErrNoOrder
	}
	return err
}
