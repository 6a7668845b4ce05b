package orm_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/examples/orm"
	sqlcmysql "github.com/holdfast-go/holdfast/examples/orm/sqlc/mysql"
	sqlcpgx "github.com/holdfast-go/holdfast/examples/orm/sqlc/pgx"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

func TestSQLC(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		s := open(t, e)
		if e == dbtest.Postgres {
			p := s.native()
			q := &orm.SQLCPGX{Holdfast: p.Holdfast, Pool: p.Pool, Queries: sqlcpgx.New(p.Pool)}
			suite(t, s, q)
			settles(t, s, q.Holdfast, q)
			return
		}
		q := &orm.SQLC{Holdfast: s.holdfast(), Pool: s.pool, Queries: sqlcmysql.New(s.pool)}
		suite(t, s, q)
		settles(t, s, q.Holdfast, q)
	})
}

func TestSQLCSwallowedErrors(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		s := open(t, e)
		if e == dbtest.Postgres {
			swallowed(t, s, s.native().Holdfast, func(ctx context.Context, tx pgx.Tx) writer {
				return writer{
					exec: func(query string) error {
						_, err := tx.Exec(ctx, query)
						return err
					},
					create: func(r orm.Refund) error { return sqlcpgx.New(tx).InsertRefund(ctx, sqlcpgx.InsertRefundParams(r)) },
				}
			})
			return
		}
		swallowed(t, s, s.holdfast(), func(ctx context.Context, tx *sql.Tx) writer {
			return writer{
				exec: func(query string) error {
					_, err := tx.ExecContext(ctx, query)
					return err
				},
				create: func(r orm.Refund) error { return sqlcmysql.New(tx).InsertRefund(ctx, sqlcmysql.InsertRefundParams(r)) },
			}
		})
	})
}
