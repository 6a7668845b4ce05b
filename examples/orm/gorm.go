package orm

import (
	"context"
	"database/sql"
	"fmt"

	"gorm.io/gorm"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/sqllock"
)

// GORM is the example with gorm.io/gorm.
type GORM struct {
	*Holdfast[*sql.Tx]

	Gorm *gorm.DB
}

// GormTx returns the transaction of tx. If tx is not in a transaction, so that GORM has a pool,
// GormTx returns an error: on a pool, a claim would commit immediately.
func GormTx(tx *gorm.DB) (*sql.Tx, error) {
	conn := tx.Statement.ConnPool
	if prepared, ok := conn.(*gorm.PreparedStmtTX); ok { // PrepareStmt wraps it
		conn = prepared.Tx
	}
	if own, ok := conn.(*sql.Tx); ok {
		return own, nil
	}
	return nil, fmt.Errorf("orm: GORM is in no transaction: %T", conn)
}

// GormOn binds GORM to a transaction that Holdfast began, as GORM's Begin binds it to its own.
// Callbacks, hooks and logger are kept.
func GormOn(ctx context.Context, db *gorm.DB, tx *sql.Tx) *gorm.DB {
	bound := db.Session(&gorm.Session{NewDB: true, Context: ctx})
	bound.Statement.ConnPool = tx
	return bound
}

// Refund joins GORM's transaction.
func (g *GORM) Refund(ctx context.Context, r Refund) (res idempotency.Result[string], err error) {
	var verdict error
	err = Again(ctx, g.DB, func() error {
		return g.Gorm.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			own, err := GormTx(tx)
			if err != nil {
				return err
			}
			res, verdict = idempotency.DoTx(ctx, g.Store, own, r.op(), func(context.Context, *sql.Tx) (string, error) {
				if err := r.check(); err != nil {
					return "", err
				}
				return r.answer(), tx.Create(&r).Error
			})
			if verdict != nil || res.Outcome == idempotency.Replayed {
				return unlessFinal(verdict)
			}
			return g.charge(tx, r) // in the same transaction, outside of the function
		})
	})
	return res, firstOf(err, verdict)
}

// RefundBound binds GORM to Holdfast's transaction.
func (g *GORM) RefundBound(ctx context.Context, r Refund) (idempotency.Result[string], error) {
	return idempotency.Do(ctx, g.Store, r.op(), func(ctx context.Context, tx *sql.Tx) (string, error) {
		if err := r.check(); err != nil {
			return "", err
		}
		bound := GormOn(ctx, g.Gorm, tx)
		if err := bound.Create(&r).Error; err != nil {
			return "", err
		}
		return r.answer(), g.charge(bound, r)
	})
}

func (*GORM) charge(tx *gorm.DB, r Refund) error {
	done := tx.Model(&Order{}).Where("order_no = ?", r.OrderNo).Update("refunded", gorm.Expr("refunded + ?", r.Cents))
	return found(done.RowsAffected, done.Error)
}

// Settle guards, locks and claims in GORM's transaction.
func (g *GORM) Settle(ctx context.Context, s Settlement, term sqllock.Term) (outcome idempotency.Outcome, err error) {
	err = Again(ctx, g.DB, func() error {
		return g.Gorm.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			own, err := GormTx(tx)
			if err != nil {
				return err
			}
			outcome, err = g.claim(ctx, own, s, term)
			if err != nil || outcome == idempotency.Replayed {
				return err
			}
			return tx.Create(&Payout{Merchant: s.Merchant, Day: s.Day, Cents: s.Cents}).Error
		})
	})
	return outcome, err
}
