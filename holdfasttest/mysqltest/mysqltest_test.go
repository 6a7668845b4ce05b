package mysqltest_test

import (
	"database/sql"
	"os"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest/mysqltest"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/kittest"
)

func TestMain(m *testing.M) { dbtest.VerifyNoLeaks(m) }

var one sync.Mutex

var variables = map[dbtest.Engine]string{dbtest.MySQL: "HOLDFAST_TEST_MYSQL_DSN", dbtest.MariaDB: "HOLDFAST_TEST_MARIADB_DSN"}

// TestKits makes each kit in a separate database, and then twice each in that of Main, side by side.
func TestKits(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		dsn := os.Getenv(variables[e])
		if dsn == "" {
			return // another engine
		}
		pool := dbtest.OpenSQL(t, dbtest.DSN(t, e))
		one.Lock() // a program has one Main
		defer one.Unlock()
		kittest.Schemas(t, pool, `SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = ?`, `SELECT DATABASE()`, mysqltest.Main,
			map[string]func(t *testing.T, opts ...holdfast.Options) *sql.DB{
				"sql": func(t *testing.T, opts ...holdfast.Options) *sql.DB {
					return kittest.Outcomes(t, mysqltest.New(t, dsn, opts...))
				},
				"sqlx": func(t *testing.T, opts ...holdfast.Options) *sql.DB {
					return kittest.Outcomes(t, mysqltest.NewX(t, dsn, opts...))
				},
			})
	})
}
