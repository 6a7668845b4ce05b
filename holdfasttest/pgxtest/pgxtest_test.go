package pgxtest_test

import (
	"database/sql"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest/pgxtest"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/kittest"
)

func TestMain(m *testing.M) { dbtest.VerifyNoLeaks(m) }

// TestKits makes each kit in a separate schema, and then twice each in the schema of Main, side by side.
func TestKits(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e != dbtest.Postgres {
			return
		}
		pool := dbtest.OpenSQL(t, dbtest.DSN(t, e))
		kittest.Schemas(t, pool, `SELECT COUNT(*) FROM pg_namespace WHERE nspname = $1`, `SELECT current_schema()`, pgxtest.Main,
			map[string]func(t *testing.T, opts ...holdfast.Options) *sql.DB{
				"pgx": func(t *testing.T, opts ...holdfast.Options) *sql.DB {
					kit := pgxtest.New(t, "", opts...)
					if err := kit.Native.Ping(t.Context()); err != nil {
						t.Error(err)
					}
					return kittest.Outcomes(t, kit.Kit)
				},
				"sql": func(t *testing.T, opts ...holdfast.Options) *sql.DB {
					return kittest.Outcomes(t, pgxtest.NewSQL(t, "", opts...))
				},
				"sqlx": func(t *testing.T, opts ...holdfast.Options) *sql.DB {
					return kittest.Outcomes(t, pgxtest.NewX(t, "", opts...))
				},
			})
	})
}
