// Package pgxtest makes the kits of holdfasttest on a PostgreSQL server, for programs on pgx, natively
// or through database/sql. The tests of a package share one schema, and owners keep them apart, so that
// they can run side by side, if TestMain ends with os.Exit(pgxtest.Main(m, createTables)):
//
//	kit := pgxtest.New(t, "postgres://user:password@127.0.0.1/db")
//	refunds := NewRefunds(kit.DB, kit.Native)
//	answer := refunds.Refund(t.Context(), kit.Owner, "order 42") // the owner, such as a merchant, is the test's own
//
// Without Main each test has its own schema, which is dropped when the test ends.
package pgxtest

import (
	"context"
	"database/sql"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/adapters/holdfastpgx" // sets pgxadapter.Of
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/holdfasttest/internal/kit"
	"github.com/holdfast-go/holdfast/internal/pgxadapter"
)

// Variable is the environment variable of the server's DSN for tests that give none.
const Variable = "HOLDFAST_TEST_POSTGRES_DSN"

var schemas kit.Schemas

// Main runs the tests of a package, from its TestMain, and returns what m.Run returns. The tests share
// one schema, which the first of them makes and Main drops, with Holdfast's tables and those that tables
// makes (nil: none). Each kit has another owner; [holdfast.Options.SingleOwner] is refused.
func Main(m interface{ Run() int }, tables func(ctx context.Context, pool *sql.DB) error) int {
	return schemas.Main(m, tables)
}

// Kit is a kit on a native pool.
type Kit struct {
	*holdfasttest.Kit[pgx.Tx]

	// Native is the pool. Kit.Pool is the same database for database/sql.
	Native *pgxpool.Pool
}

// New makes a kit in the schema of [Main], or in a separate one, in the database of dsn, which is one of
// pgx, and puts the schema on the search path of the pool. dsn "" is that of Variable. The role must be allowed to create schemas. A test without a
// server fails.
func New(tb holdfasttest.TB, dsn string, opts ...holdfast.Options) *Kit {
	tb.Helper()
	native, pool := open(tb, dsn, opts)
	k := &Kit{&holdfasttest.Kit[pgx.Tx]{}, native}
	kit.Open(k.Kit, tb, pool, pgxadapter.Of(native), opts)
	return k
}

// NewSQL is New for a program on database/sql, whose transactions are *sql.Tx.
func NewSQL(tb holdfasttest.TB, dsn string, opts ...holdfast.Options) *holdfasttest.Kit[*sql.Tx] {
	tb.Helper()
	_, pool := open(tb, dsn, opts)
	return holdfasttest.OnSQL(tb, pool, opts...)
}

// NewX is New for a program whose transactions are *sqlx.Tx.
func NewX(tb holdfasttest.TB, dsn string, opts ...holdfast.Options) *holdfasttest.Kit[*sqlx.Tx] {
	tb.Helper()
	_, pool := open(tb, dsn, opts)
	return holdfasttest.OnSQLX(tb, sqlx.NewDb(pool, "pgx"), opts...)
}

func open(tb holdfasttest.TB, dsn string, opts []holdfast.Options) (*pgxpool.Pool, *sql.DB) {
	tb.Helper()
	ctx := context.Background()
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatalf("pgxtest: %v", err)
		}
	}
	config := config(tb, dsn)
	config.ConnConfig.RuntimeParams["search_path"] = schemas.For(tb, dsn, server{config.ConnConfig}, opts)
	native, err := pgxpool.NewWithConfig(ctx, config)
	must(err)
	tb.Cleanup(native.Close)
	pool := stdlib.OpenDBFromPool(native)
	tb.Cleanup(func() { _ = pool.Close() })
	return native, pool
}

// config returns what a DSN says, or that of Variable.
func config(tb holdfasttest.TB, dsn string) *pgxpool.Config {
	tb.Helper()
	if dsn == "" {
		if dsn = os.Getenv(Variable); dsn == "" {
			tb.Fatalf("pgxtest: no server: give its DSN, or set %s", Variable)
		}
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		tb.Fatalf("pgxtest: %v", err)
	}
	return config
}

// server makes schemas in the database of a DSN.
type server struct{ config *pgx.ConnConfig }

func (s server) Create(ctx context.Context, name string) error {
	return s.exec(ctx, "CREATE SCHEMA "+name)
}

func (s server) Drop(ctx context.Context, name string) error {
	return s.exec(ctx, "DROP SCHEMA "+name+" CASCADE")
}

func (s server) Open(_ context.Context, name string) (*sql.DB, error) {
	own := s.config.Copy()
	own.RuntimeParams["search_path"] = name
	return stdlib.OpenDB(*own), nil
}

func (s server) exec(ctx context.Context, statement string) error {
	c, err := pgx.ConnectConfig(ctx, s.config)
	if err != nil {
		return err
	}
	_, err = c.Exec(ctx, statement)
	_ = c.Close(ctx)
	return err
}
