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

func TestKits(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e != dbtest.Postgres {
			return
		}
		var made []string
		for name, test := range map[string]func(t *testing.T) *sql.DB{
			"pgx": func(t *testing.T) *sql.DB {
				kit := pgxtest.New(t, "", holdfast.Options{SingleOwner: true})
				kittest.Outcomes(t, kit.Kit)
				if err := kit.Native.Ping(t.Context()); err != nil {
					t.Error(err)
				}
				return kit.Pool
			},
			"sql": func(t *testing.T) *sql.DB {
				kit := pgxtest.NewSQL(t, "", holdfast.Options{SingleOwner: true})
				kittest.Outcomes(t, kit)
				return kit.Pool
			},
			"sqlx": func(t *testing.T) *sql.DB {
				kit := pgxtest.NewX(t, "", holdfast.Options{SingleOwner: true})
				kittest.Outcomes(t, kit)
				return kit.Pool
			},
		} {
			t.Run(name, func(t *testing.T) {
				var name string
				if err := test(t).QueryRowContext(t.Context(), `SELECT current_schema()`).Scan(&name); err != nil {
					t.Error(err)
				}
				made = append(made, name)
			})
		}
		pool := dbtest.OpenSQL(t, dbtest.DSN(t, e))
		for _, name := range made {
			var n int
			if err := pool.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM pg_namespace WHERE nspname = $1`, name).Scan(&n); err != nil || n != 0 {
				t.Errorf("schema %s is left behind: %v", name, err)
			}
		}
	})
}
