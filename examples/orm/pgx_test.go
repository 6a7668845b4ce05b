package orm_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/examples/orm"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

func eachPGX(t *testing.T, f func(t *testing.T, s *shop, p *orm.PGX)) {
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e != dbtest.Postgres {
			t.Skip("pgx is PostgreSQL's")
		}
		s := open(t, e)
		f(t, s, s.native())
	})
}

func insert(ctx context.Context, tx pgx.Tx, r orm.Refund) error {
	_, err := tx.Exec(ctx, `INSERT INTO refunds (order_no, refund_no, cents) VALUES ($1, $2, $3)`, r.OrderNo, r.RefundNo, r.Cents)
	return err
}

func TestPGX(t *testing.T) {
	eachPGX(t, func(t *testing.T, s *shop, p *orm.PGX) {
		suite(t, s, p)
		settles(t, s, p.Holdfast, p)
	})
}

func TestPGXSwallowedErrors(t *testing.T) {
	eachPGX(t, func(t *testing.T, s *shop, p *orm.PGX) {
		swallowed(t, s, p.Holdfast, func(ctx context.Context, tx pgx.Tx) writer {
			return writer{
				exec: func(query string) error {
					_, err := tx.Exec(ctx, query)
					return err
				},
				create: func(r orm.Refund) error { return insert(ctx, tx, r) },
			}
		})
	})
}

// Begin on a pgx.Tx creates a savepoint and returns a pgx.Tx that rolls back to it. Holdfast
// also rolls back to it when it gets that pgx.Tx.
func TestPGXNestedBegin(t *testing.T) {
	boom := errors.New("boom")
	eachPGX(t, func(t *testing.T, s *shop, p *orm.PGX) {
		ctx := t.Context()
		once := func(tx pgx.Tx, r orm.Refund, end error) error {
			op := idempotency.Op{Name: "nested", Key: r.RefundNo, NoFingerprint: true}
			_, err := idempotency.DoTx(ctx, p.Store, tx, op, func(ctx context.Context, tx pgx.Tx) (string, error) {
				if err := insert(ctx, tx, r); err != nil {
					return "", err
				}
				return "", end
			})
			return err
		}
		first, second, third := paid, paid, paid
		second.RefundNo, third.RefundNo = "2", "3"
		s.must(pgx.BeginFunc(ctx, p.Pool, func(tx pgx.Tx) error {
			if err := once(tx, first, nil); err != nil {
				return err
			}
			// The library rolls back.
			_ = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				if err := once(tx, second, nil); err != nil {
					return err
				}
				return boom
			})
			// Holdfast rolls back.
			_ = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return once(tx, third, boom) })
			return nil
		}))
		s.wantBooks(1, 1, 0)
	})
}
