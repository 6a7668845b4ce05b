package sqllock_test

import (
	"database/sql"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/conformance"
	"github.com/holdfast-go/holdfast/internal/dbtest"
)

// pooled keeps the connections it has opened: the usual two would have each of
// hundreds of statements open one.
func pooled() conformance.Handle[*sql.Tx] {
	h := conformance.SQL()
	h.Open = func(tb testing.TB, dsn string, opts ...holdfast.Option) conformance.Pool[*sql.Tx] {
		tb.Helper()
		pool := dbtest.OpenSQL(tb, dsn)
		pool.SetMaxIdleConns(16)
		return conformance.SQLPool(tb, pool, opts...)
	}
	return h
}

func TestClaimsSQL(t *testing.T)  { t.Parallel(); conformance.Claims(t, pooled()) }
func TestClaimsSQLX(t *testing.T) { t.Parallel(); conformance.Claims(t, conformance.SQLX()) }
func TestClaimsPgx(t *testing.T)  { t.Parallel(); conformance.Claims(t, conformance.Pgx()) }

// The sessions' own isolation levels must not surface.

func TestClaimsSerializable(t *testing.T) {
	t.Parallel()
	for param, engine := range map[string]dbtest.Engine{
		"transaction_isolation=%27SERIALIZABLE%27":   dbtest.MySQL,
		"tx_isolation=%27SERIALIZABLE%27":            dbtest.MariaDB,
		"default_transaction_isolation=serializable": dbtest.Postgres,
	} {
		conformance.ClaimsContended(t, conformance.With(pooled(), param, engine))
	}
}

func TestClaimsRepeatableRead(t *testing.T) {
	t.Parallel()
	conformance.ClaimsContended(t, conformance.With(conformance.Pgx(), "default_transaction_isolation=repeatable%20read", dbtest.Postgres))
}

func TestClaimsFoundRows(t *testing.T) {
	t.Parallel()
	conformance.ClaimsContended(t, conformance.With(pooled(), "interpolateParams=true&clientFoundRows=true", dbtest.MySQL, dbtest.MariaDB))
}

func TestClaimsPoolOfOne(t *testing.T) {
	t.Parallel()
	h := conformance.SQL()
	h.Open = func(tb testing.TB, dsn string, opts ...holdfast.Option) conformance.Pool[*sql.Tx] {
		tb.Helper()
		pool := dbtest.OpenSQL(tb, dsn)
		pool.SetMaxOpenConns(1)
		return conformance.SQLPool(tb, pool, opts...)
	}
	conformance.ClaimsContended(t, h)
}
