package orm

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	sqlcmysql "github.com/holdfast-go/holdfast/examples/orm/sqlc/mysql"
	sqlcpgx "github.com/holdfast-go/holdfast/examples/orm/sqlc/pgx"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/sqllock"
)

//go:generate go run github.com/sqlc-dev/sqlc/cmd/sqlc@v1.31.1 generate -f sqlc/sqlc.yaml

// SQLC is the example with code that sqlc generated for database/sql.
type SQLC struct {
	*Holdfast[*sql.Tx]

	Pool    *sql.DB
	Queries *sqlcmysql.Queries
}

// Refund joins the program's transaction, to which WithTx binds the queries.
func (s *SQLC) Refund(ctx context.Context, r Refund) (res idempotency.Result[string], err error) {
	var verdict error
	err = Again(ctx, s.DB, func() error {
		tx, err := s.Pool.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // does nothing after a commit
		q := s.Queries.WithTx(tx)
		res, verdict = idempotency.DoTx(ctx, s.Store, tx, r.op(), func(ctx context.Context, _ *sql.Tx) (string, error) {
			if err := r.check(); err != nil {
				return "", err
			}
			return r.answer(), q.InsertRefund(ctx, sqlcmysql.InsertRefundParams(r))
		})
		if err := unlessFinal(verdict); err != nil {
			return err
		}
		if verdict == nil && res.Outcome == idempotency.Executed {
			// In the same transaction, outside of the function.
			if err := found(q.Charge(ctx, sqlcmysql.ChargeParams{Cents: r.Cents, OrderNo: r.OrderNo})); err != nil {
				return err
			}
		}
		return tx.Commit()
	})
	return res, firstOf(err, verdict)
}

// RefundBound binds the queries to Holdfast's transaction.
func (s *SQLC) RefundBound(ctx context.Context, r Refund) (idempotency.Result[string], error) {
	return idempotency.Do(ctx, s.Store, r.op(), func(ctx context.Context, tx *sql.Tx) (string, error) {
		if err := r.check(); err != nil {
			return "", err
		}
		q := s.Queries.WithTx(tx)
		if err := q.InsertRefund(ctx, sqlcmysql.InsertRefundParams(r)); err != nil {
			return "", err
		}
		return r.answer(), found(q.Charge(ctx, sqlcmysql.ChargeParams{Cents: r.Cents, OrderNo: r.OrderNo}))
	})
}

// Settle guards, locks and claims in the program's transaction.
func (s *SQLC) Settle(ctx context.Context, day Settlement, term sqllock.Term) (outcome idempotency.Outcome, err error) {
	err = Again(ctx, s.DB, func() error {
		tx, err := s.Pool.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		outcome, err = s.claim(ctx, tx, day, term)
		if err != nil || outcome == idempotency.Replayed {
			return err
		}
		if err := s.Queries.WithTx(tx).InsertPayout(ctx, sqlcmysql.InsertPayoutParams(day)); err != nil {
			return err
		}
		return tx.Commit()
	})
	return outcome, err
}

// SQLCPGX is the example with code that sqlc generated for pgx.
type SQLCPGX struct {
	*Holdfast[pgx.Tx]

	Pool    *pgxpool.Pool
	Queries *sqlcpgx.Queries
}

// Refund joins a transaction that pgx began, to which WithTx binds the queries.
func (s *SQLCPGX) Refund(ctx context.Context, r Refund) (res idempotency.Result[string], err error) {
	var verdict error
	err = Again(ctx, s.DB, func() error {
		return pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
			q := s.Queries.WithTx(tx)
			res, verdict = idempotency.DoTx(ctx, s.Store, tx, r.op(), func(ctx context.Context, _ pgx.Tx) (string, error) {
				if err := r.check(); err != nil {
					return "", err
				}
				return r.answer(), q.InsertRefund(ctx, sqlcpgx.InsertRefundParams(r))
			})
			if verdict != nil || res.Outcome == idempotency.Replayed {
				return unlessFinal(verdict)
			}
			return found(q.Charge(ctx, sqlcpgx.ChargeParams{Cents: r.Cents, OrderNo: r.OrderNo}))
		})
	})
	return res, firstOf(err, verdict)
}

// RefundBound binds the queries to Holdfast's transaction.
func (s *SQLCPGX) RefundBound(ctx context.Context, r Refund) (idempotency.Result[string], error) {
	return idempotency.Do(ctx, s.Store, r.op(), func(ctx context.Context, tx pgx.Tx) (string, error) {
		if err := r.check(); err != nil {
			return "", err
		}
		q := s.Queries.WithTx(tx)
		if err := q.InsertRefund(ctx, sqlcpgx.InsertRefundParams(r)); err != nil {
			return "", err
		}
		return r.answer(), found(q.Charge(ctx, sqlcpgx.ChargeParams{Cents: r.Cents, OrderNo: r.OrderNo}))
	})
}

// Settle guards, locks and claims in a transaction that pgx began.
func (s *SQLCPGX) Settle(ctx context.Context, day Settlement, term sqllock.Term) (outcome idempotency.Outcome, err error) {
	err = Again(ctx, s.DB, func() error {
		return pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) (err error) {
			outcome, err = s.claim(ctx, tx, day, term)
			if err != nil || outcome == idempotency.Replayed {
				return err
			}
			return s.Queries.WithTx(tx).InsertPayout(ctx, sqlcpgx.InsertPayoutParams(day))
		})
	})
	return outcome, err
}
