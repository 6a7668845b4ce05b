package register_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/conformance/optimistic"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

func all[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Parallel()
	optimistic.Register(t, h)
}

func TestRegisterSQL(t *testing.T)  { all(t, conformance.SQL()) }
func TestRegisterSQLX(t *testing.T) { all(t, conformance.SQLX()) }
func TestRegisterPgx(t *testing.T)  { all(t, conformance.Pgx()) }

// The driver settings that change what is sent to the server and what "affected rows" means.

func TestRegisterMySQLFoundRows(t *testing.T) {
	all(t, conformance.With(conformance.SQL(), "clientFoundRows=true", dbtest.MySQL, dbtest.MariaDB))
}

func TestRegisterMySQLInterpolatedFoundRows(t *testing.T) {
	all(t, conformance.With(conformance.SQL(), "interpolateParams=true&clientFoundRows=true", dbtest.MySQL, dbtest.MariaDB))
}

func TestRegisterPgxSimpleProtocol(t *testing.T) {
	all(t, conformance.With(conformance.Pgx(), "default_query_exec_mode=simple_protocol", dbtest.Postgres))
}

func TestRegisterPgxExec(t *testing.T) {
	all(t, conformance.With(conformance.Pgx(), "default_query_exec_mode=exec", dbtest.Postgres))
}

func TestRegisterStdlibSimpleProtocol(t *testing.T) {
	all(t, conformance.With(conformance.SQL(), "default_query_exec_mode=simple_protocol", dbtest.Postgres))
}
