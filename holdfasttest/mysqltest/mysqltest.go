// Package mysqltest makes the kits of holdfasttest on a MySQL or MariaDB server: for tests of SQL that
// SQLite does not understand. The tests of a package share one database, and owners keep them apart, so
// that they can run side by side, if TestMain ends with os.Exit(mysqltest.Main(m, createTables)):
//
//	kit := mysqltest.New(t, "root:password@tcp(127.0.0.1:3306)/")
//	refunds := NewRefunds(kit.DB)
//	answer := refunds.Refund(t.Context(), kit.Owner, "order 42") // the owner, such as a merchant, is the test's own
//
// Without Main each test has its own database, which is dropped when the test ends.
package mysqltest

import (
	"context"
	"database/sql"
	"os"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/holdfasttest/internal/kit"
)

// Variable is the environment variable of the server's DSN for tests that give none.
const Variable = "HOLDFAST_TEST_MYSQL_DSN"

var schemas kit.Schemas

// Main runs the tests of a package, from its TestMain, and returns what m.Run returns. The tests share
// one database, which the first of them makes and Main drops, with Holdfast's tables and those that
// tables makes (nil: none). Each kit has another owner; [holdfast.Options.SingleOwner] is refused.
func Main(m interface{ Run() int }, tables func(ctx context.Context, pool *sql.DB) error) int {
	return schemas.Main(m, tables)
}

// New makes a kit in the database of [Main], or in a separate one, on the server of dsn, which is a DSN of go-sql-driver/mysql, with or without
// mysql:// before it. Its parameters apply; its database does not. dsn "" is that of Variable. The
// account must be allowed to create databases. A test without a server fails.
func New(tb holdfasttest.TB, dsn string, opts ...holdfast.Options) *holdfasttest.Kit[*sql.Tx] {
	tb.Helper()
	return holdfasttest.OnSQL(tb, open(tb, dsn, opts), opts...)
}

// NewX is New for a program whose transactions are *sqlx.Tx.
func NewX(tb holdfasttest.TB, dsn string, opts ...holdfast.Options) *holdfasttest.Kit[*sqlx.Tx] {
	tb.Helper()
	return holdfasttest.OnSQLX(tb, sqlx.NewDb(open(tb, dsn, opts), "mysql"), opts...)
}

func open(tb holdfasttest.TB, dsn string, opts []holdfast.Options) *sql.DB {
	tb.Helper()
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatalf("mysqltest: %v", err)
		}
	}
	at := server{parse(tb, dsn)}
	pool, err := at.Open(context.Background(), schemas.For(tb, dsn, at, opts))
	must(err)
	tb.Cleanup(func() { _ = pool.Close() })
	return pool
}

// parse returns what a DSN says, or that of Variable.
func parse(tb holdfasttest.TB, dsn string) *mysql.Config {
	tb.Helper()
	if dsn == "" {
		if dsn = os.Getenv(Variable); dsn == "" {
			tb.Fatalf("mysqltest: no server: give its DSN, or set %s", Variable)
		}
	}
	config, err := mysql.ParseDSN(strings.TrimPrefix(dsn, "mysql://"))
	if err != nil {
		tb.Fatalf("mysqltest: %v", err)
	}
	return config
}

// server makes databases on the server of a DSN.
type server struct{ config *mysql.Config }

func (s server) Create(ctx context.Context, name string) error {
	return s.exec(ctx, "CREATE DATABASE "+name+" CHARACTER SET utf8mb4")
}

func (s server) Drop(ctx context.Context, name string) error {
	return s.exec(ctx, "DROP DATABASE "+name)
}

func (s server) Open(_ context.Context, name string) (*sql.DB, error) {
	own := s.config.Clone()
	own.DBName = name
	connector, err := mysql.NewConnector(own)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func (s server) exec(ctx context.Context, statement string) error {
	pool, err := s.Open(ctx, "")
	if err != nil {
		return err
	}
	defer pool.Close()
	_, err = pool.ExecContext(ctx, statement)
	return err
}
