// Package mysqltest makes the kits of holdfasttest on a MySQL or MariaDB server: for tests of SQL that
// SQLite does not understand. Each test has its own database, with Holdfast's tables, which is
// dropped when the test ends.
//
//	kit := mysqltest.New(t, "root:password@tcp(127.0.0.1:3306)/")
package mysqltest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"os"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/migrations"
)

// Variable is the environment variable of the server's DSN for tests that give none.
const Variable = "HOLDFAST_TEST_MYSQL_DSN"

// New creates a database on the server of dsn, which is a DSN of go-sql-driver/mysql, with or without
// mysql:// before it. Its parameters apply; its database does not. dsn "" is that of Variable. The
// account must be allowed to create databases. A test without a server fails.
func New(tb holdfasttest.TB, dsn string, opts ...holdfast.Options) *holdfasttest.Kit[*sql.Tx] {
	tb.Helper()
	return holdfasttest.OnSQL(tb, open(tb, dsn), opts...)
}

// NewX is New for a program whose transactions are *sqlx.Tx.
func NewX(tb holdfasttest.TB, dsn string, opts ...holdfast.Options) *holdfasttest.Kit[*sqlx.Tx] {
	tb.Helper()
	return holdfasttest.OnSQLX(tb, sqlx.NewDb(open(tb, dsn), "mysql"), opts...)
}

func open(tb holdfasttest.TB, dsn string) *sql.DB {
	tb.Helper()
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatalf("mysqltest: %v", err)
		}
	}
	if dsn == "" {
		if dsn = os.Getenv(Variable); dsn == "" {
			tb.Fatalf("mysqltest: no server: give its DSN, or set %s", Variable)
		}
	}
	config, err := mysql.ParseDSN(strings.TrimPrefix(dsn, "mysql://"))
	must(err)
	random := make([]byte, 8)
	_, _ = rand.Read(random) // never fails, as documented
	name := "holdfasttest_" + hex.EncodeToString(random)
	config.DBName = ""
	server := connect(config, must)
	tb.Cleanup(func() { _ = server.Close() })
	_, err = server.ExecContext(context.Background(), "CREATE DATABASE "+name+" CHARACTER SET utf8mb4")
	must(err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // of a transaction that was left open
		defer cancel()
		_, err := server.ExecContext(ctx, "DROP DATABASE "+name)
		must(err)
	})
	config.DBName = name
	pool := connect(config, must)
	tb.Cleanup(func() { _ = pool.Close() })
	must(migrations.Up(context.Background(), pool))
	return pool
}

func connect(config *mysql.Config, must func(error)) *sql.DB {
	connector, err := mysql.NewConnector(config.Clone())
	must(err)
	return sql.OpenDB(connector)
}
