package orm

import (
	"context"
	"database/sql"

	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/holdfastgorm"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/sqllock"
)

// GORM is the example with gorm.io/gorm.
type GORM struct {
	*Holdfast[*sql.Tx]

	Gorm *gorm.DB
}

// Refund joins a transaction in which more is written.
func (g *GORM) Refund(ctx context.Context, r Refund) (idempotency.Result[string], error) {
	return holdfastgorm.Transaction(ctx, g.Gorm, g.DB, func(tx *gorm.DB) (idempotency.Result[string], error) {
		res, err := holdfastgorm.DoTx(ctx, g.Store, tx, r.op(), func(tx *gorm.DB) (string, error) {
			if err := r.check(); err != nil {
				return "", err
			}
			return r.answer(), tx.Create(&r).Error
		})
		if err != nil || res.Outcome == idempotency.Replayed {
			return res, err
		}
		return res, g.charge(tx, r) // in the same transaction, outside of the function
	})
}

// RefundBound is the common refund: all of it in the function.
func (g *GORM) RefundBound(ctx context.Context, r Refund) (idempotency.Result[string], error) {
	return holdfastgorm.Do(ctx, g.Gorm, g.Store, r.op(), func(tx *gorm.DB) (string, error) {
		if err := r.check(); err != nil {
			return "", err
		}
		if err := tx.Create(&r).Error; err != nil {
			return "", err
		}
		return r.answer(), g.charge(tx, r)
	})
}

func (*GORM) charge(tx *gorm.DB, r Refund) error {
	done := tx.Model(&Order{}).Where("order_no = ?", r.OrderNo).Update("refunded", gorm.Expr("refunded + ?", r.Cents))
	return found(done.RowsAffected, done.Error)
}

// Settle guards, locks and claims in the transaction in which GORM writes.
func (g *GORM) Settle(ctx context.Context, s Settlement, term sqllock.Term) (outcome idempotency.Outcome, err error) {
	err = holdfastgorm.InTx(ctx, g.Gorm, g.DB, func(tx *gorm.DB) error {
		own, err := holdfastgorm.Tx(tx)
		if err != nil {
			return err
		}
		outcome, err = g.claim(ctx, own, s, term)
		if err != nil || outcome == idempotency.Replayed {
			return err
		}
		return tx.Create(&Payout{Merchant: s.Merchant, Day: s.Day, Cents: s.Cents}).Error
	})
	return outcome, err
}
