package mysqltest_test

import (
	"database/sql"
	"os"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest/mysqltest"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/kittest"
)

func TestMain(m *testing.M) { dbtest.VerifyNoLeaks(m) }

func TestKits(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		variables := map[dbtest.Engine]string{dbtest.MySQL: "HOLDFAST_TEST_MYSQL_DSN", dbtest.MariaDB: "HOLDFAST_TEST_MARIADB_DSN"}
		dsn := os.Getenv(variables[e])
		if dsn == "" {
			return // another engine
		}
		var made []string
		for name, test := range map[string]func(t *testing.T) *sql.DB{
			"sql": func(t *testing.T) *sql.DB {
				kit := mysqltest.New(t, dsn, holdfast.Options{SingleOwner: true})
				kittest.Outcomes(t, kit)
				return kit.Pool
			},
			"sqlx": func(t *testing.T) *sql.DB {
				kit := mysqltest.NewX(t, dsn, holdfast.Options{SingleOwner: true})
				kittest.Outcomes(t, kit)
				return kit.Pool
			},
		} {
			t.Run(name, func(t *testing.T) {
				var name string
				if err := test(t).QueryRowContext(t.Context(), `SELECT DATABASE()`).Scan(&name); err != nil {
					t.Error(err)
				}
				made = append(made, name)
			})
		}
		pool := dbtest.OpenSQL(t, dbtest.DSN(t, e))
		for _, name := range made {
			var n int
			if err := pool.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = ?`, name).Scan(&n); err != nil || n != 0 {
				t.Errorf("database %s is left behind: %v", name, err)
			}
		}
	})
}
