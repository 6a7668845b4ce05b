// Package orm shows Holdfast in the transactions of GORM, bun, sqlc and pgx. It is a separate
// module, so that Holdfast requires none of them.
//
// Each example does the same three things. Refund begins the transaction with the library and
// passes it to Holdfast. RefundBound lets Holdfast begin it and binds the library to it. Settle
// begins it with the library, and Holdfast guards, locks and claims in it.
package orm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/businessrow"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

// Refund is a row of refunds. Its key is made of the order and the refund's number. The table has
// no unique key, so that a second run would be visible.
type Refund struct {
	OrderNo  string
	RefundNo string
	Cents    int64
}

// Order is a row of orders. It cannot be refunded beyond the paid amount.
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

// ErrNoOrder means that the order does not exist. The libraries report no error for an update of
// no row.
var ErrNoOrder = errors.New("orm: no such order")

// Holdfast holds the parts that the examples use; Tx is *sql.Tx or pgx.Tx.
type Holdfast[Tx any] struct {
	DB          *holdfast.DB[Tx]
	Store       *idempotency.Store[Tx]
	Locks       *sqllock.Locker[Tx]
	RowLocks    *rowlock.Locker[Tx]
	Settlements *businessrow.Table[Settlement, Tx]
}

// Open opens Holdfast on the library's pool.
func Open[Tx any](ctx context.Context, db *holdfast.DB[Tx]) (*Holdfast[Tx], error) {
	h := &Holdfast[Tx]{DB: db}
	var err error
	if h.Store, err = idempotency.New(ctx, db); err != nil {
		return nil, err
	}
	if h.Settlements, err = businessrow.New[Settlement](ctx, db, holdfast.TableSpec{Table: "settlements", Key: []string{"merchant", "day"}},
		businessrow.Options{Compare: []string{"cents"}}); err != nil {
		return nil, err
	}
	if h.RowLocks, err = rowlock.New(ctx, db); err != nil {
		return nil, err
	}
	h.Locks, err = sqllock.New(ctx, db)
	return h, err
}

// claim guards the transaction with the lease's term, locks the merchant and claims the
// settlement's row. These must be the first statements of a transaction.
func (h *Holdfast[Tx]) claim(ctx context.Context, tx Tx, s Settlement, term sqllock.Term) (idempotency.Outcome, error) {
	if err := h.Locks.Guard(ctx, tx, term); err != nil {
		return 0, err
	}
	if err := h.RowLocks.LockTx(ctx, tx, "merchant/"+s.Merchant, 10*time.Second); err != nil {
		return 0, err
	}
	res, err := h.Settlements.ClaimTx(ctx, tx, s)
	return res.Outcome, err
}

// Again repeats a transaction of a library if the engine rolled it back. Do and InTx do so
// themselves.
func Again[Tx any](ctx context.Context, db *holdfast.DB[Tx], transaction func() error) error {
	for attempt := 1; ; attempt++ {
		err := transaction()
		if !errors.Is(err, holdfast.ErrRetry) && !db.Retryable(err) || attempt == 10 {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(rand.N(time.Duration(attempt) * 10 * time.Millisecond)):
		}
	}
}

// unlessFinal converts the error of DoTx to the return value of the library's transaction
// function. A rejection must be committed, although it is an error for the caller.
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

// found checks that an update found its row. No library checks this.
func found(rows int64, err error) error {
	if err == nil && rows == 0 {
		return ErrNoOrder
	}
	return err
}
