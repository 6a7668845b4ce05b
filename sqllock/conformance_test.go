package sqllock_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/conformance"
	"github.com/holdfast-go/holdfast/internal/dbtest"
)

// leases is the suite of the lease locks on one handle.
func leases[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Parallel()
	conformance.Leases(t, h)
}

func TestLeasesSQL(t *testing.T)  { leases(t, conformance.SQL()) }
func TestLeasesSQLX(t *testing.T) { leases(t, conformance.SQLX()) }
func TestLeasesPgx(t *testing.T)  { leases(t, conformance.Pgx()) }

// The settings of the drivers that change what goes over the wire.

func TestLeasesMySQLInterpolatedFoundRows(t *testing.T) {
	leases(t, conformance.With(conformance.SQL(), "interpolateParams=true&clientFoundRows=true", dbtest.MySQL, dbtest.MariaDB))
}

func TestLeasesMySQLInterpolated(t *testing.T) {
	leases(t, conformance.With(conformance.SQLX(), "interpolateParams=true", dbtest.MySQL, dbtest.MariaDB))
}

func TestLeasesPgxSimpleProtocol(t *testing.T) {
	leases(t, conformance.With(conformance.Pgx(), "default_query_exec_mode=simple_protocol", dbtest.Postgres))
}

func TestLeasesPgxExec(t *testing.T) {
	leases(t, conformance.With(conformance.Pgx(), "default_query_exec_mode=exec", dbtest.Postgres))
}

func TestLeasesStdlibSimpleProtocol(t *testing.T) {
	leases(t, conformance.With(conformance.SQL(), "default_query_exec_mode=simple_protocol", dbtest.Postgres))
}
