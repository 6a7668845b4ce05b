package orm_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"

	"github.com/holdfast-go/holdfast/examples/orm"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

func eachBun(t *testing.T, f func(t *testing.T, s *shop, b *orm.Bun)) {
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		s := open(t, e)
		var dialect schema.Dialect
		switch {
		case e == dbtest.Postgres:
			dialect = pgdialect.New()
		case s.innoDB():
			dialect = mysqldialect.New()
		default:
			dialect = sqlitedialect.New()
		}
		f(t, s, &orm.Bun{Holdfast: s.holdfast(), Bun: bun.NewDB(s.pool, dialect)})
	})
}

func TestBun(t *testing.T) {
	eachBun(t, func(t *testing.T, s *shop, b *orm.Bun) {
		suite(t, s, b)
		settles(t, s, b.Holdfast, b)
	})
}

func TestBunSwallowedErrors(t *testing.T) {
	eachBun(t, func(t *testing.T, s *shop, b *orm.Bun) {
		swallowed(t, s, b.Holdfast, func(ctx context.Context, tx *sql.Tx) writer {
			return writer{
				exec: func(query string) error {
					_, err := b.Bun.NewRaw(query).Conn(tx).Exec(ctx)
					return err
				},
				create: func(r orm.Refund) error {
					_, err := b.Bun.NewInsert().Model(&r).Conn(tx).Exec(ctx)
					return err
				},
			}
		})
	})
}

// RunInTx on a transaction creates a savepoint.
func TestBunNestedRunInTx(t *testing.T) {
	boom := errors.New("boom")
	eachBun(t, func(t *testing.T, s *shop, b *orm.Bun) {
		once := func(ctx context.Context, tx bun.Tx, r orm.Refund, end error) error {
			op := idempotency.Op{Name: "nested", Key: r.RefundNo, NoFingerprint: true}
			_, err := idempotency.DoTx(ctx, b.Store, tx.Tx, op, func(ctx context.Context, _ *sql.Tx) (string, error) {
				if _, err := tx.NewInsert().Model(&r).Exec(ctx); err != nil {
					return "", err
				}
				return "", end
			})
			return err
		}
		first, second := paid, paid
		second.RefundNo = "2"

		// If a nested transaction fails and its error is ignored, its record is rolled back with
		// it.
		s.must(b.Bun.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			if err := once(ctx, tx, first, nil); err != nil {
				return err
			}
			_ = tx.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				if err := once(ctx, tx, second, nil); err != nil {
					return err
				}
				return boom
			})
			return nil
		}))
		s.wantBooks(1, 1, 0)

		// If the function of DoTx fails, Holdfast rolls back the whole transaction. If that error
		// is ignored, the commit fails.
		s.exec(`DELETE FROM refunds`)
		s.exec(`DELETE FROM holdfast_records`)
		err := b.Bun.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			if err := once(ctx, tx, first, nil); err != nil {
				return err
			}
			_ = tx.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error { return once(ctx, tx, second, boom) })
			_, _ = tx.NewInsert().Model(&paid).Exec(ctx) // fails before it reaches a connection
			return nil
		})
		if !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("commit: %v, want %v", err, sql.ErrTxDone)
		}
		s.wantBooks(0, 0, 0)
	})
}
