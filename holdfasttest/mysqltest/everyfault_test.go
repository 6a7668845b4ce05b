package mysqltest_test

import (
	"context"
	"database/sql"
	"os"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/holdfasttest/mysqltest"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/kittest"
	"github.com/holdfast-go/holdfast/internal/test/kittest/handlers"
)

func TestEveryFault(t *testing.T) {
	cases := kittest.ByDay()
	if dbtest.Nightly() {
		cases = nil
	}
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		dsn := os.Getenv(variables[e])
		if dsn == "" {
			return // another engine
		}
		kittest.EveryFault[*sql.Tx, sql.Result]{
			Program: kittest.SQL(handlers.MySQL),
			Run: func(tb holdfasttest.TB, h kittest.Handler[*sql.Tx], opts ...holdfast.Options) int {
				return mysqltest.EveryFault(tb, dsn, holdfasttest.Handler(h), opts...)
			},
		}.Test(t, cases)
	})
}

// TestEveryFaultStartsFromNothing makes one of each kind in Setup, which finds none of the run before.
func TestEveryFaultStartsFromNothing(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		dsn := os.Getenv(variables[e])
		if dsn == "" {
			return // another engine
		}
		runs := 0
		own := map[dbtest.Engine][]string{dbtest.MariaDB: {`CREATE SEQUENCE s`, `CREATE TABLE versioned (id BIGINT) WITH SYSTEM VERSIONING`}}
		mysqltest.EveryFault(t, dsn, holdfasttest.Handler{
			Setup: func(ctx context.Context, kit *holdfasttest.Kit[*sql.Tx]) error {
				runs++
				for _, create := range append([]string{
					`CREATE TABLE parent (id BIGINT PRIMARY KEY)`, `CREATE TABLE child (id BIGINT, FOREIGN KEY (id) REFERENCES parent (id))`,
					"CREATE TABLE `order` (id BIGINT)",
					`CREATE VIEW v AS SELECT 1 AS one`, `CREATE PROCEDURE p() SELECT 1`, `CREATE FUNCTION f() RETURNS INT DETERMINISTIC RETURN 1`,
				}, own[e]...) {
					if _, err := kit.Pool.ExecContext(ctx, create); err != nil {
						return err
					}
				}
				return kittest.Fill(ctx, kit)
			},
			Call:      func(context.Context, *holdfasttest.Kit[*sql.Tx], string) error { return nil },
			Invariant: func(context.Context, *holdfasttest.Kit[*sql.Tx]) error { return nil },
		})
		if runs != 2 {
			t.Errorf("%d runs", runs)
		}
	})
}
