// Package pgxtest makes the kits of holdfasttest on a PostgreSQL server, for programs on pgx, natively
// or through database/sql. Each test has its own schema, with Holdfast's tables, which is dropped
// when the test ends.
//
//	kit := pgxtest.New(t, "postgres://user:password@127.0.0.1/db")
//	refunds := NewRefunds(kit.DB, kit.Native)
package pgxtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/adapters/holdfastpgx" // sets pgxadapter.Of
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/holdfasttest/internal/kit"
	"github.com/holdfast-go/holdfast/internal/pgxadapter"
	"github.com/holdfast-go/holdfast/migrations"
)

// Variable is the environment variable of the server's DSN for tests that give none.
const Variable = "HOLDFAST_TEST_POSTGRES_DSN"

// Kit is a kit on a native pool.
type Kit struct {
	*holdfasttest.Kit[pgx.Tx]

	// Native is the pool. Kit.Pool is the same database for database/sql.
	Native *pgxpool.Pool
}

// New creates a schema in the database of dsn, which is one of pgx, and puts it on the search path of
// the pool. dsn "" is that of Variable. The role must be allowed to create schemas. A test without a
// server fails.
func New(tb holdfasttest.TB, dsn string, opts ...holdfast.Options) *Kit {
	tb.Helper()
	native, pool := open(tb, dsn)
	k := &Kit{&holdfasttest.Kit[pgx.Tx]{}, native}
	kit.Open(k.Kit, tb, pool, pgxadapter.Of(native), opts)
	return k
}

// NewSQL is New for a program on database/sql, whose transactions are *sql.Tx.
func NewSQL(tb holdfasttest.TB, dsn string, opts ...holdfast.Options) *holdfasttest.Kit[*sql.Tx] {
	tb.Helper()
	_, pool := open(tb, dsn)
	return holdfasttest.OnSQL(tb, pool, opts...)
}

// NewX is New for a program whose transactions are *sqlx.Tx.
func NewX(tb holdfasttest.TB, dsn string, opts ...holdfast.Options) *holdfasttest.Kit[*sqlx.Tx] {
	tb.Helper()
	_, pool := open(tb, dsn)
	return holdfasttest.OnSQLX(tb, sqlx.NewDb(pool, "pgx"), opts...)
}

func open(tb holdfasttest.TB, dsn string) (*pgxpool.Pool, *sql.DB) {
	tb.Helper()
	ctx := context.Background()
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatalf("pgxtest: %v", err)
		}
	}
	if dsn == "" {
		if dsn = os.Getenv(Variable); dsn == "" {
			tb.Fatalf("pgxtest: no server: give its DSN, or set %s", Variable)
		}
	}
	config, err := pgxpool.ParseConfig(dsn)
	must(err)
	random := make([]byte, 8)
	_, _ = rand.Read(random) // never fails, as documented
	name := "holdfasttest_" + hex.EncodeToString(random)
	admin := func(ctx context.Context, statement string) {
		c, err := pgx.ConnectConfig(ctx, config.ConnConfig.Copy())
		must(err)
		_, err = c.Exec(ctx, statement)
		_ = c.Close(ctx)
		must(err)
	}
	admin(ctx, "CREATE SCHEMA "+name)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(ctx, time.Minute) // of a transaction that was left open
		defer cancel()
		admin(ctx, "DROP SCHEMA "+name+" CASCADE")
	})
	own := config.Copy()
	own.ConnConfig.RuntimeParams["search_path"] = name
	native, err := pgxpool.NewWithConfig(ctx, own)
	must(err)
	tb.Cleanup(native.Close)
	pool := stdlib.OpenDBFromPool(native)
	tb.Cleanup(func() { _ = pool.Close() })
	must(migrations.Up(ctx, pool))
	return native, pool
}
