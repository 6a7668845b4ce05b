package orm

import (
	"context"
	"database/sql"

	"github.com/uptrace/bun"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/sqllock"
)

// Bun is the example with github.com/uptrace/bun.
type Bun struct {
	*Holdfast[*sql.Tx]

	Bun *bun.DB
}

// Refund joins bun's transaction, whose *sql.Tx is tx.Tx.
func (b *Bun) Refund(ctx context.Context, r Refund) (res idempotency.Result[string], err error) {
	var verdict error
	err = Again(ctx, b.DB, func() error {
		return b.Bun.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			res, verdict = idempotency.DoTx(ctx, b.Store, tx.Tx, r.op(), func(ctx context.Context, _ *sql.Tx) (string, error) {
				if err := r.check(); err != nil {
					return "", err
				}
				_, err := tx.NewInsert().Model(&r).Exec(ctx)
				return r.answer(), err
			})
			if verdict != nil || res.Outcome == idempotency.Replayed {
				return unlessFinal(verdict)
			}
			return b.charge(ctx, tx, r) // in the same transaction, outside of the function
		})
	})
	return res, firstOf(err, verdict)
}

// RefundBound binds each query of bun to Holdfast's transaction, with Conn. A
// query without it goes to the pool, past the transaction.
func (b *Bun) RefundBound(ctx context.Context, r Refund) (idempotency.Result[string], error) {
	return idempotency.Do(ctx, b.Store, r.op(), func(ctx context.Context, tx *sql.Tx) (string, error) {
		if err := r.check(); err != nil {
			return "", err
		}
		if _, err := b.Bun.NewInsert().Model(&r).Conn(tx).Exec(ctx); err != nil {
			return "", err
		}
		return r.answer(), b.charge(ctx, tx, r)
	})
}

func (b *Bun) charge(ctx context.Context, tx bun.IConn, r Refund) error {
	done, err := b.Bun.NewUpdate().Model((*Order)(nil)).Conn(tx).
		Set("refunded = refunded + ?", r.Cents).Where("order_no = ?", r.OrderNo).Exec(ctx)
	if err != nil {
		return err
	}
	return found(done.RowsAffected())
}

// Settle guards, locks and claims in bun's transaction.
func (b *Bun) Settle(ctx context.Context, s Settlement, term sqllock.Term) (outcome idempotency.Outcome, err error) {
	err = Again(ctx, b.DB, func() error {
		return b.Bun.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) (err error) {
			outcome, err = b.claim(ctx, tx.Tx, s, term)
			if err != nil || outcome == idempotency.Replayed {
				return err
			}
			_, err = tx.NewInsert().Model(&Payout{Merchant: s.Merchant, Day: s.Day, Cents: s.Cents}).Exec(ctx)
			return err
		})
	})
	return outcome, err
}
