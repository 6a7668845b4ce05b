package fairlock_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/conformance/fairlocks"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

func TestTickets(t *testing.T) {
	t.Parallel()
	conformance.Handles(t, conformance.Suite{
		SQL: fairlocks.Suite[*sql.Tx], SQLX: fairlocks.Suite[*sqlx.Tx], Pgx: fairlocks.Suite[pgx.Tx],
	})
}

// The isolation levels of the sessions must make no difference.

func TestTicketsSerializable(t *testing.T) {
	t.Parallel()
	for param, engine := range map[string]dbtest.Engine{
		"transaction_isolation=%27SERIALIZABLE%27":   dbtest.MySQL,
		"tx_isolation=%27SERIALIZABLE%27":            dbtest.MariaDB,
		"default_transaction_isolation=serializable": dbtest.Postgres,
	} {
		fairlocks.Contended(t, conformance.With(conformance.SQL(), param, engine))
	}
}

func TestTicketsRepeatableRead(t *testing.T) {
	t.Parallel()
	fairlocks.Contended(t, conformance.With(conformance.Pgx(), "default_transaction_isolation=repeatable%20read", dbtest.Postgres))
}

func TestTicketsFoundRows(t *testing.T) {
	t.Parallel()
	fairlocks.Contended(t, conformance.With(conformance.SQL(), "interpolateParams=true&clientFoundRows=true", dbtest.MySQL, dbtest.MariaDB))
}

func TestTicketsPoolOfOne(t *testing.T) {
	dbtest.NotUnderRace(t, "with one connection little runs at once")
	t.Parallel()
	h := conformance.SQL()
	h.Open = func(tb testing.TB, dsn string, opts ...holdfast.Options) conformance.Pool[*sql.Tx] {
		tb.Helper()
		pool := dbtest.OpenSQL(tb, dsn)
		pool.SetMaxOpenConns(1)
		return conformance.SQLPool(tb, pool, opts...)
	}
	fairlocks.Contended(t, h)
}
