package idempotency_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/conformance"
	"github.com/holdfast-go/holdfast/internal/dbtest"
)

// Names that are SQL, through drivers that bind on the server and through those
// that write the values into the statement.

func TestInjectionSQL(t *testing.T) { conformance.Injection(t, conformance.SQL()) }

func TestInjectionInterpolated(t *testing.T) {
	conformance.Injection(t, conformance.With(conformance.SQL(), "interpolateParams=true", dbtest.MySQL, dbtest.MariaDB))
}

func TestInjectionPgxSimpleProtocol(t *testing.T) {
	conformance.Injection(t, conformance.With(conformance.Pgx(), "default_query_exec_mode=simple_protocol", dbtest.Postgres))
}

func TestTenantsSQL(t *testing.T) { conformance.Tenants(t, conformance.SQL()) }
