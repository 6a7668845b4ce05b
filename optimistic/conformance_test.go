package optimistic_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/conformance"
	"github.com/holdfast-go/holdfast/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.VerifyNoLeaks(m) }

func all[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Parallel()
	conformance.Optimistic(t, h)
	conformance.Register(t, h)
}

func TestSQL(t *testing.T)  { all(t, conformance.SQL()) }
func TestSQLX(t *testing.T) { all(t, conformance.SQLX()) }
func TestPgx(t *testing.T)  { all(t, conformance.Pgx()) }

// The settings of the drivers that change what goes over the wire, and what
// "affected rows" means.

func TestMySQLFoundRows(t *testing.T) {
	all(t, conformance.With(conformance.SQL(), "clientFoundRows=true", dbtest.MySQL, dbtest.MariaDB))
}

func TestMySQLInterpolatedFoundRows(t *testing.T) {
	all(t, conformance.With(conformance.SQL(), "interpolateParams=true&clientFoundRows=true", dbtest.MySQL, dbtest.MariaDB))
}

func TestPgxSimpleProtocol(t *testing.T) {
	all(t, conformance.With(conformance.Pgx(), "default_query_exec_mode=simple_protocol", dbtest.Postgres))
}

func TestPgxExec(t *testing.T) {
	all(t, conformance.With(conformance.Pgx(), "default_query_exec_mode=exec", dbtest.Postgres))
}

func TestStdlibSimpleProtocol(t *testing.T) {
	all(t, conformance.With(conformance.SQL(), "default_query_exec_mode=simple_protocol", dbtest.Postgres))
}
