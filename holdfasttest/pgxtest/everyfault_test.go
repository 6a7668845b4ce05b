package pgxtest_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/holdfasttest/pgxtest"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/kittest"
	"github.com/holdfast-go/holdfast/internal/test/kittest/handlers"
)

func TestEveryFault(t *testing.T) {
	pgxCases, sqlCases := kittest.ByDay(), kittest.Brief // on the same wire
	if dbtest.Nightly() {
		pgxCases, sqlCases = nil, nil
	}
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e != dbtest.Postgres {
			return
		}
		t.Run("pgx", func(t *testing.T) {
			kittest.EveryFault[pgx.Tx, pgconn.CommandTag]{
				Program: kittest.Pgx,
				Run: func(tb holdfasttest.TB, h kittest.Handler[pgx.Tx], opts ...holdfast.Options) int {
					return pgxtest.EveryFault(tb, "", pgxtest.Handler{
						Setup: func(ctx context.Context, kit *pgxtest.Kit) error { return h.Setup(ctx, kit.Kit) },
						Call: func(ctx context.Context, kit *pgxtest.Kit, key string) error {
							return h.Call(kittest.OnNative(ctx, kit.Native), kit.Kit, key)
						},
						Invariant:       func(ctx context.Context, kit *pgxtest.Kit) error { return h.Invariant(ctx, kit.Kit) },
						OtherKeyRefused: h.OtherKeyRefused,
					}, opts...)
				},
			}.Test(t, pgxCases)
		})
		t.Run("sql", func(t *testing.T) {
			kittest.EveryFault[*sql.Tx, sql.Result]{
				Program: kittest.SQL(handlers.Postgres),
				Run: func(tb holdfasttest.TB, h kittest.Handler[*sql.Tx], opts ...holdfast.Options) int {
					return pgxtest.EveryFaultSQL(tb, "", holdfasttest.Handler(h), opts...)
				},
			}.Test(t, sqlCases)
		})
	})
}

// TestEveryFaultStartsFromNothing makes one of each kind in Setup, which finds none of the run before.
func TestEveryFaultStartsFromNothing(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e != dbtest.Postgres {
			return
		}
		runs := 0
		pgxtest.EveryFault(t, "", pgxtest.Handler{
			Setup: func(ctx context.Context, kit *pgxtest.Kit) error {
				runs++
				for _, create := range []string{
					`CREATE TABLE parent (id BIGSERIAL PRIMARY KEY)`, `CREATE TABLE child (id BIGINT REFERENCES parent)`, `CREATE VIEW v AS SELECT 1 AS one`,
					`CREATE TABLE "order" (id BIGINT GENERATED ALWAYS AS IDENTITY)`, `CREATE TYPE r AS RANGE (subtype = INT)`,
					`CREATE MATERIALIZED VIEW m AS SELECT 1 AS one`, `CREATE SEQUENCE s`, `CREATE TYPE e AS ENUM ('a')`, `CREATE TYPE c AS (n INT)`, `CREATE DOMAIN d AS INT`,
					`CREATE FUNCTION f() RETURNS INT LANGUAGE sql AS 'SELECT 1'`, `CREATE PROCEDURE p() LANGUAGE sql AS 'SELECT 1'`,
				} {
					if _, err := kit.Native.Exec(ctx, create); err != nil {
						return err
					}
				}
				return kittest.Fill(ctx, kit.Kit)
			},
			Call:      func(context.Context, *pgxtest.Kit, string) error { return nil },
			Invariant: func(context.Context, *pgxtest.Kit) error { return nil },
		})
		if runs != 2 {
			t.Errorf("%d runs", runs)
		}
	})
}
