package orm

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/sqllock"
)

// PGX is the example with github.com/jackc/pgx and nothing else.
type PGX struct {
	*Holdfast[pgx.Tx]

	Pool *pgxpool.Pool
}

// Refund joins a transaction that pgx began.
func (p *PGX) Refund(ctx context.Context, r Refund) (res idempotency.Result[string], err error) {
	var verdict error
	err = Again(ctx, p.DB, func() error {
		return pgx.BeginFunc(ctx, p.Pool, func(tx pgx.Tx) error {
			res, verdict = idempotency.DoTx(ctx, p.Store, tx, r.op(), p.insert(r))
			if verdict != nil || res.Outcome == idempotency.Replayed {
				return unlessFinal(verdict)
			}
			return p.charge(ctx, tx, r) // in the same transaction, outside of the function
		})
	})
	return res, firstOf(err, verdict)
}

// RefundBound works in Holdfast's transaction, which is a pgx.Tx already.
func (p *PGX) RefundBound(ctx context.Context, r Refund) (idempotency.Result[string], error) {
	return idempotency.Do(ctx, p.Store, r.op(), func(ctx context.Context, tx pgx.Tx) (string, error) {
		answer, err := p.insert(r)(ctx, tx)
		if err != nil {
			return "", err
		}
		return answer, p.charge(ctx, tx, r)
	})
}

func (*PGX) insert(r Refund) func(context.Context, pgx.Tx) (string, error) {
	return func(ctx context.Context, tx pgx.Tx) (string, error) {
		if err := r.check(); err != nil {
			return "", err
		}
		_, err := tx.Exec(ctx, `INSERT INTO refunds (order_no, refund_no, cents) VALUES ($1, $2, $3)`, r.OrderNo, r.RefundNo, r.Cents)
		return r.answer(), err
	}
}

func (*PGX) charge(ctx context.Context, tx pgx.Tx, r Refund) error {
	done, err := tx.Exec(ctx, `UPDATE orders SET refunded = refunded + $1 WHERE order_no = $2`, r.Cents, r.OrderNo)
	return found(done.RowsAffected(), err)
}

// Settle guards, locks and claims in a transaction that pgx began.
func (p *PGX) Settle(ctx context.Context, s Settlement, term sqllock.Term) (outcome idempotency.Outcome, err error) {
	err = Again(ctx, p.DB, func() error {
		return pgx.BeginFunc(ctx, p.Pool, func(tx pgx.Tx) (err error) {
			outcome, err = p.claim(ctx, tx, s, term)
			if err != nil || outcome == idempotency.Replayed {
				return err
			}
			_, err = tx.Exec(ctx, `INSERT INTO payouts (merchant, day, cents) VALUES ($1, $2, $3)`, s.Merchant, s.Day, s.Cents)
			return err
		})
	})
	return outcome, err
}
